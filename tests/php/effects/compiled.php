<?php

return 1;
