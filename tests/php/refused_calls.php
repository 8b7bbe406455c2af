<?php

/**
 * Starts a program to which the kernel refuses system calls, as the seccomp profile of a container does (seccomp(2)). Needs FFI.
 *
 *   php -d ffi.enable=1 refused_calls.php CALL=ERRNO[,CALL=ERRNO...] PROGRAM [ARGUMENT...]
 *
 * CALL is `close_range`, `memfd_create`, `userfaultfd` (with its device) or `pagemap_scan` (the ioctl of Linux 6.7).
 */

declare(strict_types=1);

[, $refused, $program] = $argv;
// linux/seccomp.h, linux/filter.h, linux/audit.h; the numbers are system call numbers.
[$architecture, $calls, $ioctl] = match (php_uname('m')) {
    'x86_64' => [0xC000003E, ['close_range' => 436, 'memfd_create' => 319, 'userfaultfd' => 323], 16],
    'aarch64' => [0xC00000B7, ['close_range' => 436, 'memfd_create' => 279, 'userfaultfd' => 282], 29],
};
// USERFAULTFD_IOC_NEW of /dev/userfaultfd, linux/userfaultfd.h; _IOWR('f', 16, struct pm_scan_arg), linux/fs.h
$ioctls = ['userfaultfd' => 0xAA00, 'pagemap_scan' => 0xC0606610];
$load = 0x20;
$isEqual = 0x15;
$return = 0x06;
$allow = 0x7FFF0000;

// Code, how many to skip when it is true and when not, value. seccomp_data has the call at 0, the architecture at 4, the second argument at 24.
$filter = [[$load, 0, 0, 4], [$isEqual, 1, 0, $architecture], [$return, 0, 0, $allow], [$load, 0, 0, 0]];
$ofIoctl = [];
foreach (explode(',', $refused) as $pair) {
    [$call, $errno] = explode('=', $pair);
    $answer = [$return, 0, 0, 0x00050000 | (int) $errno];
    if (isset($calls[$call])) {
        array_push($filter, [$isEqual, 0, 1, $calls[$call]], $answer);
    }
    if (isset($ioctls[$call])) {
        array_push($ofIoctl, [$isEqual, 0, 1, $ioctls[$call]], $answer);
    }
}
array_push($filter, [$isEqual, 1, 0, $ioctl], [$return, 0, 0, $allow], [$load, 0, 0, 24], ...$ofIoctl);
$filter[] = [$return, 0, 0, $allow];

$c = FFI::cdef('
    struct sock_filter { uint16_t code; uint8_t jt, jf; uint32_t k; };
    struct sock_fprog { unsigned short len; struct sock_filter *filter; };
    int prctl(int option, ...);
');
$steps = $c->new('struct sock_filter[' . count($filter) . ']');
foreach ($filter as $i => [$code, $true, $false, $value]) {
    [$steps[$i]->code, $steps[$i]->jt, $steps[$i]->jf, $steps[$i]->k] = [$code, $true, $false, $value];
}
$fprog = $c->new('struct sock_fprog');
$fprog->len = count($filter);
$fprog->filter = FFI::addr($steps[0]);
$noNewPrivileges = 38;
$setSeccomp = 22;
$modeFilter = 2;
if ($c->prctl($noNewPrivileges, 1, 0, 0, 0) !== 0 || $c->prctl($setSeccomp, $modeFilter, FFI::addr($fprog)) !== 0) {
    fwrite(STDERR, "the kernel takes no filter\n");
    exit(1);
}
pcntl_exec($program, array_slice($argv, 3));
fwrite(STDERR, "{$program} cannot be started\n");
exit(1);
