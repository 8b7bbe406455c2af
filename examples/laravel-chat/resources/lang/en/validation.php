<?php

declare(strict_types=1);

return [
    'max' => ['string' => 'The :attribute may have at most :max characters.'],
    'required' => 'The :attribute field is required.',
    'string' => 'The :attribute must be text.',
];
