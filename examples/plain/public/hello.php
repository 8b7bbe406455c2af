<?php

echo 'Hello, world!';
