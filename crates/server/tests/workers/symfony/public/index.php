<?php

// Never runs: the worker script answers in its place.
throw new LogicException('index.php ran');
