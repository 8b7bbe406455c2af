<?php

$held = new Fixture\Witness('held');
throw new RuntimeException('of the request', 7, new LogicException('before it'));
