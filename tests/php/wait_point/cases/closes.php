<?php

fclose($stream);
echo 'closed ';
