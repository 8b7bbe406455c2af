<?php

throw new LogicException('the worker script answers in its place');
