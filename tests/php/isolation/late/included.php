<?php

const INCLUDED = true;

return 1;
