<?php
/* Lists the files that OPcache has, for Hearth (php.preload): by NUL, after a marker that no script before it prints. */
ini_set('display_errors', '0');
$status = function_exists('opcache_get_status') ? @opcache_get_status(true) : false;
$preload = ini_get('opcache.preload');
$preloaded = array_diff($status['preload_statistics']['scripts'] ?? [], [$preload, realpath($preload)]);
echo "\0hearth-preload\0", $preload, "\0", count($preloaded), "\0";
echo $status === false ? 'off' : 'on', "\0", implode("\0", array_keys($status['scripts'] ?? []));
