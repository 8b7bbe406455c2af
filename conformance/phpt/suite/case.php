<?php require Phpt::begin(); Phpt::end();
