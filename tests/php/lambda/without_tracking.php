<?php

/**
 * Starts a program for which the kernel cannot find written pages: userfaultfd(2), its device and the ioctl PAGEMAP_SCAN end with the error numbers that are named; 0: they
 * work. Needs FFI.
 *
 *   php -d ffi.enable=1 without_tracking.php ERRNO-OF-USERFAULTFD ERRNO-OF-PAGEMAP_SCAN PROGRAM [ARGUMENT...]
 */

declare(strict_types=1);

[, $userfaultfd, $scan, $program] = $argv;
// linux/seccomp.h, linux/filter.h, linux/audit.h; the numbers are those of the calls.
[$architecture, $callUserfaultfd, $callIoctl] = match (php_uname('m')) {
    'x86_64' => [0xC000003E, 323, 16],
    'aarch64' => [0xC00000B7, 282, 29],
};
$newUserfaultfd = 0xAA00; // USERFAULTFD_IOC_NEW of /dev/userfaultfd, linux/userfaultfd.h
$pagemapScan = 0xC0606610; // _IOWR('f', 16, struct pm_scan_arg), linux/fs.h
$load = 0x20;
$isEqual = 0x15;
$return = 0x06;
$allow = 0x7FFF0000;
$answer = static fn (string $errno): int => $errno === '0' ? $allow : 0x00050000 | (int) $errno;

// Code, how many to skip when it is true and when not, value. seccomp_data has the call at 0, the architecture at 4, the second argument at 24.
$filter = [
    [$load, 0, 0, 4],
    [$isEqual, 0, 7, $architecture],
    [$load, 0, 0, 0],
    [$isEqual, 6, 0, $callUserfaultfd],
    [$isEqual, 0, 4, $callIoctl],
    [$load, 0, 0, 24],
    [$isEqual, 3, 0, $newUserfaultfd],
    [$isEqual, 0, 1, $pagemapScan],
    [$return, 0, 0, $answer($scan)],
    [$return, 0, 0, $allow],
    [$return, 0, 0, $answer($userfaultfd)],
];
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
pcntl_exec($program, array_slice($argv, 4));
fwrite(STDERR, "{$program} cannot be started\n");
exit(1);
