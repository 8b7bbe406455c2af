<?php
// How tests/php/extensions/app.php exercises each extension that is not of PHP's own source; see probes_php.php. `reports`: it sends a
// datagram about each request.

$refused = static function (Closure $connect): string {
    try {
        return @$connect() ? 'connected' : 'refused';
    } catch (Throwable $thrown) {
        return $thrown::class;
    }
};
$difference = "a\nb\n";

return [
    'amqp' => ['use' => static fn () => $refused(static fn () => (new AMQPConnection(['host' => '127.0.0.1', 'port' => 1]))->connect())],
    'apcu' => [
        'use' => static fn () => apcu_store('key', 'value') ? apcu_fetch('key') : 'off',
        'change' => static fn () => apcu_store('left', 'behind') ? null : null,
        'look' => static fn () => apcu_exists('left'),
        'shared' => 'the cache',
    ],
    'ast' => ['use' => static fn () => ast\parse_code('<?php echo 1;', max(ast\get_supported_versions()))->kind],
    'decimal' => ['use' => static fn () => (string) (new Decimal\Decimal('1.5'))->add('2')],
    'ds' => [
        'use' => static fn () => (new Ds\Vector([1, 2, 3]))->sum(),
        'change' => static fn () => new Ds\Map(['left' => 'behind']),
    ],
    'excimer' => [
        'use' => static function () {
            $profiler = new ExcimerProfiler();
            $profiler->setPeriod(0.001);
            $profiler->start();
            for ($end = microtime(true) + 5; $profiler->getLog()->count() === 0 && microtime(true) < $end;) {
                strrev('text');
            }
            $profiler->stop();
            return microtime(true) < $end;
        },
        'change' => static function () {
            $profiler = new ExcimerProfiler();
            $profiler->setPeriod(0.01);
            $profiler->start();
            return $profiler;
        },
    ],
    'gearman' => [
        'use' => static fn () => $refused(static fn () => (new GearmanClient())->addServer('127.0.0.1', 1)),
        'change' => static fn () => new GearmanClient(),
    ],
    'geos' => [
        'use' => static fn () => (new GEOSWKTReader())->read('POLYGON((0 0, 0 2, 2 2, 2 0, 0 0))')->area(),
        'change' => static fn () => new GEOSWKBWriter(),
    ],
    'gmagick' => [
        'use' => static function () {
            $image = new Gmagick();
            $image->newimage(64, 64, 'red');
            $image->blurimage(2, 2);
            $image->setimageformat('png');
            return strlen($image->getimageblob()) > 0;
        },
        'change' => static fn () => new Gmagick(),
    ],
    'gnupg' => [
        'use' => static fn () => (new gnupg(['home_dir' => sys_get_temp_dir()]))->keyinfo('none'),
        'change' => static fn () => new gnupg(['home_dir' => sys_get_temp_dir()]),
    ],
    'grpc' => [
        'use' => static function () {
            $channel = new Grpc\Channel('127.0.0.1:1', ['credentials' => Grpc\ChannelCredentials::createInsecure()]);
            $state = $channel->getConnectivityState(true) >= 0;
            $channel->watchConnectivityState(Grpc\CHANNEL_IDLE, Grpc\Timeval::now()->add(new Grpc\Timeval(20000)));
            return $state;
        },
        'change' => static fn () => new Grpc\Channel('127.0.0.1:2', ['credentials' => Grpc\ChannelCredentials::createInsecure()]),
    ],
    'guestfs_php' => ['use' => static fn () => is_resource(guestfs_create())],
    'horde_lz4' => ['use' => static fn () => horde_lz4_uncompress(horde_lz4_compress('text'))],
    'http' => [
        'use' => static fn () => [(string) new http\Url('http://example.com/a?b=c'), $refused(static fn () => (new http\Client())->enqueue(new http\Client\Request('GET', 'http://127.0.0.1:1'))->send())],
        'change' => static fn () => new http\Client(),
    ],
    'ice' => [
        'use' => static function () {
            require_once '/usr/share/php/Ice.php';
            $communicator = Ice\initialize();
            $proxy = (string) $communicator->stringToProxy('a:tcp -h 127.0.0.1 -p 1');
            $communicator->destroy();
            return $proxy;
        },
        'change' => static fn () => Ice\initialize(),
    ],
    'igbinary' => ['use' => static fn () => igbinary_unserialize(igbinary_serialize(['key' => 1.5]))],
    'imagick' => [
        'use' => static function () {
            $image = new Imagick();
            $image->newImage(256, 256, 'red', 'png');
            $image->blurImage(2, 2);
            $image->resizeImage(32, 32, Imagick::FILTER_LANCZOS, 1);
            return strlen($image->getImageBlob()) > 0;
        },
        'change' => static fn () => [Imagick::setResourceLimit(Imagick::RESOURCETYPE_FILE, 77), new Imagick()],
        'look' => static fn () => (int) Imagick::getResourceLimit(Imagick::RESOURCETYPE_FILE),
    ],
    'inotify' => [
        'use' => static fn () => inotify_add_watch($watch = inotify_init(), '/tmp', IN_CREATE) > 0 && is_resource($watch),
        'change' => static fn () => inotify_init(),
    ],
    'libvirt-php' => ['use' => static fn () => is_array(libvirt_version())],
    'luasandbox' => [
        'use' => static function () {
            $sandbox = new LuaSandbox();
            $sandbox->setCPULimit(0.5);
            return $sandbox->loadString('return 6 * 7')->call();
        },
        'change' => static fn () => new LuaSandbox(),
    ],
    'mailparse' => [
        'use' => static function () {
            $mail = mailparse_msg_create();
            mailparse_msg_parse($mail, "Subject: text\r\n\r\nbody");
            return mailparse_msg_get_part_data($mail)['headers']['subject'];
        },
        'change' => static fn () => mailparse_msg_create(),
    ],
    'maxminddb' => ['use' => static fn () => $refused(static fn () => new MaxMind\Db\Reader('/nowhere'))],
    'mcrypt' => [
        'use' => static fn () => strlen(@mcrypt_encrypt('rijndael-128', str_repeat('k', 16), 'text', 'ecb')),
        'change' => static fn () => @mcrypt_module_open('rijndael-128', '', 'ecb', ''),
    ],
    'memcache' => ['use' => static fn () => $refused(static fn () => (new Memcache())->connect('127.0.0.1', 1))],
    'memcached' => [
        'use' => static function () {
            $client = new Memcached('persistent');
            $client->getServerList() || $client->addServer('127.0.0.1', 1);
            return [$client->get('key'), count($client->getServerList())];
        },
        'change' => static function () {
            $client = new Memcached('persistent');
            return $client->setOption(Memcached::OPT_PREFIX_KEY, 'left');
        },
        'look' => static fn () => (new Memcached('persistent'))->getOption(Memcached::OPT_PREFIX_KEY),
    ],
    'mongodb' => [
        'use' => static fn () => $refused(static fn () => (new MongoDB\Driver\Manager('mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50'))
            ->executeCommand('admin', new MongoDB\Driver\Command(['ping' => 1]))),
        'change' => static fn () => new MongoDB\Driver\Manager('mongodb://127.0.0.1:2/?serverSelectionTimeoutMS=50'),
    ],
    'msgpack' => ['use' => static fn () => msgpack_unpack(msgpack_pack(['key' => 1.5]))],
    'newrelic' => ['use' => static fn () => newrelic_set_appname('test') || true, 'change' => static fn () => newrelic_name_transaction('left')],
    'oauth' => ['use' => static fn () => oauth_get_sbs('GET', 'http://example.com/', ['a' => 'b'])],
    'opentelemetry' => [
        // Where there is a boot, requests are traced by its hook.
        'use' => static function () {
            if (!function_exists('traced')) {
                eval('function traced() {} function traced_later() {}');
                OpenTelemetry\Instrumentation\hook(null, 'traced', static fn () => $GLOBALS['calls']++);
            }
            $GLOBALS['calls'] = 0;
            traced();
            return $GLOBALS['calls'];
        },
        'change' => static function () {
            function_exists('traced_later') || eval('function traced_later() {}');
            OpenTelemetry\Instrumentation\hook(null, 'traced_later', static fn () => $GLOBALS['later'] = true);
        },
        'look' => static function () {
            $GLOBALS['later'] = false;
            function_exists('traced_later') && traced_later();
            return $GLOBALS['later'];
        },
    ],
    'parallel' => ['use' => static fn () => parallel\run(static fn () => 42)->value()],
    'pcov' => [
        'use' => static function () {
            pcov\start();
            pcov\stop();
            return is_array(pcov\collect());
        },
        'change' => static fn () => pcov\start(),
        'look' => static fn () => pcov\waiting(),
    ],
    'php_mapscriptng' => ['use' => static fn () => is_string(msGetVersion())],
    'pinba' => [
        'reports' => true,
        'use' => static fn () => is_resource(pinba_timer_start(['tag' => 'value'])),
        'change' => static fn () => pinba_script_name_set('left'),
        'look' => static fn () => pinba_get_info()['script_name'] ?? null,
    ],
    'pq' => ['use' => static fn () => $refused(static fn () => new pq\Connection('host=127.0.0.1 port=1'))],
    'ps' => ['use' => static fn () => is_resource(ps_new()), 'change' => static fn () => ps_new()],
    'psr' => ['use' => static fn () => interface_exists(Psr\Log\LoggerInterface::class)],
    'raphf' => ['use' => static fn () => is_object(raphf\stat_persistent_handles())],
    'redis' => [
        'use' => static fn () => $refused(static fn () => (new Redis())->connect('127.0.0.1', 1)),
        'change' => static fn () => new Redis(),
    ],
    'remctl' => ['use' => static fn () => get_debug_type(remctl_new()), 'change' => static fn () => remctl_new()],
    'rrd' => ['use' => static fn () => is_string(rrd_version()), 'change' => static fn () => @rrd_fetch('/nowhere', []), 'look' => static fn () => rrd_error()],
    'smbclient' => ['use' => static fn () => is_resource(smbclient_state_new()), 'change' => static fn () => smbclient_state_new()],
    'solr' => ['use' => static fn () => (string) (new SolrQuery())->setQuery('a:b')->setStart(0)],
    'ssh2' => ['use' => static fn () => $refused(static fn () => ssh2_connect('127.0.0.1', 1))],
    'stomp' => ['use' => static fn () => $refused(static fn () => new Stomp('tcp://127.0.0.1:1'))],
    'swoole' => [
        // Coroutines and servers are for the command line: a SAPI that serves requests has tables, locks and counters.
        'use' => static function () {
            $table = new Swoole\Table(8);
            $table->column('value', Swoole\Table::TYPE_INT);
            $table->create();
            $table->set('key', ['value' => 42]);
            return [$table->get('key', 'value'), (new Swoole\Atomic(1))->add(2), function_exists('Swoole\Coroutine\run')];
        },
        'change' => static fn () => new Swoole\Lock(),
    ],
    'tideways_xhprof' => [
        'use' => static function () {
            tideways_xhprof_enable();
            strrev('text');
            return is_array(tideways_xhprof_disable());
        },
        'change' => static fn () => tideways_xhprof_enable(),
    ],
    'uopz' => [
        'use' => static fn () => uopz_get_return('time'),
        'change' => static fn () => uopz_set_return('phpversion', 'left'),
        'look' => static fn () => phpversion() === 'left',
    ],
    'uploadprogress' => ['use' => static fn () => uploadprogress_get_info('none')],
    'uuid' => ['use' => static fn () => uuid_is_valid(uuid_create())],
    'wikidiff2' => ['use' => static fn () => strlen(wikidiff2_do_diff($difference, "a\nc\n", 2)) > 0],
    'wmerrors' => ['use' => static fn () => extension_loaded('wmerrors')],
    'xdebug' => [
        'use' => static function () {
            xdebug_start_code_coverage();
            $lines = xdebug_get_code_coverage();
            xdebug_stop_code_coverage();
            return is_array($lines);
        },
        'change' => static fn () => xdebug_start_code_coverage(),
        'look' => static fn () => xdebug_code_coverage_started(),
    ],
    'xmlrpc' => ['use' => static fn () => xmlrpc_decode(xmlrpc_encode(['key' => 1])), 'change' => static fn () => xmlrpc_server_create()],
    'yac' => [
        'use' => static fn () => (new Yac())->set('key', 'value') ? (new Yac())->get('key') : 'off',
        'change' => static fn () => (new Yac())->set('left', 'behind') ? null : null,
        'look' => static fn () => (new Yac())->get('left') !== false,
        'shared' => 'the cache',
    ],
    'yaml' => ['use' => static fn () => yaml_parse(yaml_emit(['key' => 'value']))],
    'zmq' => [
        'use' => static fn () => (new ZMQContext())->getSocket(ZMQ::SOCKET_PUB) instanceof ZMQSocket,
        'change' => static fn () => (new ZMQContext())->getSocket(ZMQ::SOCKET_PUB),
    ],
    'zstd' => ['use' => static fn () => zstd_uncompress(zstd_compress('text'))],
];
