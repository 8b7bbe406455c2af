<?php

echo 'sent';
fastcgi_finish_request();
echo 'not sent';
