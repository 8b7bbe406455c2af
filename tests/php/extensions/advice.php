<?php
// What to know about an extension beyond the words of the table. `advice`: a sentence or two, on docs/extensions.md and in `hearth check` where the
// extension does not suit the model. `stays`: what a request leaves to the next one of its process where the word is `fpm`.

return [
    'advice' => [
        'apcu' => 'All workers of a server share one cache. A reload boots the application in new processes, which begin with an empty one. Scripts that [wait](guide/await.md) have a cache each, so an application with APCu waits only if a setting says so.',
        'excimer' => 'Start a profiler in requests, not at boot, and in a sample of them: its timer runs a thread.',
        'gmagick' => 'Set `OMP_NUM_THREADS=1` in the server\'s environment: then GraphicsMagick starts no thread, and `snapshot` and `fork` serve it like any other extension.',
        'grpc' => 'It starts its threads with the worker script, used or not: choose `request`, `worker` or `prespawn`. `grpc.enable_fork_support` changes nothing.',
        'ffi' => 'It needs `ffi.enable = 1`.',
        'libowphp' => 'It starts a thread when PHP loads it, used or not: choose `request` or `worker`.',
        'luasandbox' => 'Call `setCPULimit()` in requests, not at boot: its timer runs a thread. Without a CPU limit there is no thread and no fork.',
        'mcrypt' => 'It locks memory. Use it in requests, not at boot: then a request that uses it costs no fork.',
        'newrelic' => 'The agent begins and ends a transaction with PHP\'s own request, which is the whole worker script in `snapshot`, `fork` and `worker`: choose '
            . '`request`. Loading and serving were tested, reporting was not: that needs New Relic\'s service.',
        'opentelemetry' => 'Hooks of the boot are called in requests, in every model; hooks that a request adds are gone with it. It starts no thread itself.',
        'pdo_firebird' => 'Connect in requests, not at boot: Firebird\'s client library runs threads.',
        'pinba' => 'It reports PHP\'s own requests, and a worker script is one: choose `request`.',
        'swoole' => 'Tables, atomics and locks work. `Swoole\Coroutine\run()` is not there, as under php-fpm: Swoole defines it on PHP\'s command line only.',
        'xdebug' => 'Tested with `xdebug.mode = develop,coverage`. [Step debugging](guide/development.md#xdebug) stops in the boot in `request` only.',
        'zmq' => 'Make the `ZMQContext` in requests, not at boot: it runs threads, which the persistent context of the default keeps.',
    ],
    'stays' => [
        'ffi' => 'variables of C libraries',
        'gettext' => '`textdomain()`',
        'imagick' => '`Imagick::setResourceLimit()`',
        'ldap' => '`ldap_set_option(null, …)`',
        'memcached' => 'options of a persistent client',
        'pcov' => 'the list of files',
        'posix' => '`posix_get_last_error()`',
        'readline' => 'the history',
        'snmp' => '`snmp_set_quick_print()` and its like',
        'sockets' => '`socket_last_error()`',
    ],
];
