<?php

/** The route at which Hearth looks up applications (`realtime.lookup = "php:/hearth/apps"`), if the
 * container has Applications. */

declare(strict_types=1);

namespace Hearth\Laravel;

use Hearth\Realtime\LookUp;
use Illuminate\Http\Request;
use Illuminate\Http\Response;

final class LookUpController
{
    public function __invoke(Request $request, LookUp $lookUp): Response
    {
        [$status, $body] = $lookUp->answer($request->query->all(), (string) $request->header('Authorization'));
        return new Response($body, $status, ['Content-Type' => 'application/json', 'Cache-Control' => 'no-store']);
    }
}
