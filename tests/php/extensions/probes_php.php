<?php
// How tests/php/extensions/app.php exercises each extension of PHP's own source. `use` returns what must be the same in every request,
// `change` leaves state behind (its value stays in a static property), `look` says what is found of that. `shared`: memory that exists to be
// shared between requests, with what it is. No probe needs a server; those that would connect expect to be refused.

$refused = static function (Closure $connect): string {
    try {
        return @$connect() ? 'connected' : 'refused';
    } catch (Throwable $thrown) {
        return $thrown::class;
    }
};
$xml = '<a><b c="d">text</b></a>';

return [
    'bcmath' => [
        'use' => static fn () => bcmul('12345678901234567890', '2', 3),
        'change' => static fn () => bcscale(7),
        'look' => static fn () => bcscale(),
    ],
    'bz2' => [
        'use' => static fn () => bzdecompress(bzcompress('text')),
        'change' => static fn () => bzopen('/dev/null', 'w'),
    ],
    'calendar' => ['use' => static fn () => gregoriantojd(11, 26, 2026)],
    'ctype' => ['use' => static fn () => ctype_alpha('text')],
    'curl' => [
        'use' => static function () {
            $handle = curl_init('file://' . __FILE__);
            curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
            return substr(curl_exec($handle), 0, 5);
        },
        'change' => static fn () => [curl_init(), curl_multi_init(), curl_share_init()],
    ],
    'dba' => [
        'use' => static function () {
            $file = tempnam(sys_get_temp_dir(), 'dba');
            $base = dba_open($file, 'n', 'flatfile');
            dba_insert('key', 'value', $base);
            $value = dba_fetch('key', $base);
            dba_close($base);
            unlink($file);
            return $value;
        },
        'change' => static fn () => dba_open('/tmp/left.db', 'c', 'flatfile'),
        'look' => static fn () => dba_list(),
    ],
    'dom' => [
        'use' => static function () use ($xml) {
            $document = new DOMDocument();
            $document->loadXML($xml);
            return $document->getElementsByTagName('b')->item(0)->textContent;
        },
        'change' => static fn () => libxml_use_internal_errors(true),
        'look' => static function () {
            $before = libxml_use_internal_errors();
            return $before;
        },
    ],
    'enchant' => [
        'use' => static fn () => count(enchant_broker_describe(enchant_broker_init())) > 0,
        'change' => static fn () => enchant_broker_init(),
    ],
    'exif' => ['use' => static fn () => exif_tagname(0x10F)],
    'ffi' => [
        'use' => static fn () => FFI::cdef('int abs(int);')->abs(-3),
        // A variable of the C library: PHP itself never puts it back.
        'change' => static fn () => FFI::cdef('int optind;')->optind = 7,
        'look' => static fn () => FFI::cdef('int optind;')->optind,
    ],
    'fileinfo' => [
        'use' => static fn () => (new finfo(FILEINFO_MIME_TYPE))->buffer('<?php echo 1;'),
        'change' => static fn () => new finfo(),
    ],
    'ftp' => ['use' => static fn () => $refused(static fn () => ftp_connect('127.0.0.1', 1, 1))],
    'gd' => [
        'use' => static function () {
            $image = imagescale(imagecreatetruecolor(64, 64), 32);
            ob_start();
            imagepng($image);
            return md5(ob_get_clean());
        },
        'change' => static fn () => imagecreatetruecolor(16, 16),
    ],
    'gettext' => [
        'use' => static fn () => gettext('text'),
        'change' => static fn () => textdomain('left'),
        'look' => static fn () => textdomain(null),
    ],
    'gmp' => [
        'use' => static fn () => gmp_strval(gmp_pow(2, 100)),
        'change' => static fn () => gmp_random_seed(1),
    ],
    'iconv' => ['use' => static fn () => bin2hex(iconv('UTF-8', 'ISO-8859-1', 'ä'))],
    'imap' => [
        'use' => static fn () => imap_rfc822_parse_adrlist('Name <a@example.com>', '')[0]->host,
        'change' => static fn () => @imap_open('{127.0.0.1:1/imap/novalidate-cert}', 'user', 'secret', 0, 1),
        'look' => static fn () => imap_last_error(),
    ],
    'intl' => [
        'use' => static fn () => [
            (new Collator('de'))->compare('ä', 'z'),
            (new NumberFormatter('de', NumberFormatter::DECIMAL))->format(1234.5),
            Normalizer::normalize("a\u{308}"),
        ],
        'change' => static fn () => [Locale::setDefault('fr_FR'), @intl_is_failure(1), new Collator('fr')],
        'look' => static fn () => [Locale::getDefault(), intl_get_error_code()],
    ],
    'ldap' => [
        'use' => static fn () => ldap_escape('a*b') . $refused(static fn () => ldap_bind(ldap_connect('ldap://127.0.0.1:1'))),
        'change' => static fn () => [ldap_set_option(null, LDAP_OPT_SIZELIMIT, 77), ldap_connect('ldap://127.0.0.1:1')],
        'look' => static function () {
            ldap_get_option(ldap_connect('ldap://127.0.0.1:1'), LDAP_OPT_SIZELIMIT, $limit);
            return $limit;
        },
    ],
    'mbstring' => [
        'use' => static fn () => mb_strtoupper('ä') . mb_ereg_replace('b', 'c', 'abc'),
        'change' => static fn () => [mb_internal_encoding('ISO-8859-1'), mb_language('ja'), mb_substitute_character(0x3F), mb_regex_encoding('EUC-JP')],
        'look' => static fn () => [mb_internal_encoding(), mb_language(), mb_substitute_character(), mb_regex_encoding()],
    ],
    'mysqli' => [
        'use' => static fn () => $refused(static fn () => new mysqli('127.0.0.1', 'user', 'secret', 'base', 1)),
        'change' => static fn () => [mysqli_report(MYSQLI_REPORT_OFF), mysqli_init()],
        'look' => static fn () => (new mysqli_driver())->report_mode,
    ],
    'odbc' => ['use' => static fn () => $refused(static fn () => odbc_connect('none', '', ''))],
    'pdo' => ['use' => static fn () => is_array(PDO::getAvailableDrivers())],
    'pdo_dblib' => ['use' => static fn () => $refused(static fn () => new PDO('dblib:host=127.0.0.1:1;dbname=base', 'user', 'secret'))],
    'pdo_firebird' => ['use' => static fn () => $refused(static fn () => new PDO('firebird:dbname=127.0.0.1/1:base', 'user', 'secret'))],
    'pdo_mysql' => ['use' => static fn () => $refused(static fn () => new PDO('mysql:host=127.0.0.1;port=1', 'user', 'secret'))],
    'pdo_odbc' => ['use' => static fn () => $refused(static fn () => new PDO('odbc:none'))],
    'pdo_pgsql' => ['use' => static fn () => $refused(static fn () => new PDO('pgsql:host=127.0.0.1;port=1'))],
    'pdo_sqlite' => [
        'use' => static fn () => (new PDO('sqlite::memory:'))->query('SELECT 6 * 7')->fetchColumn(),
        'change' => static fn () => new PDO('sqlite::memory:'),
    ],
    'pgsql' => ['use' => static fn () => $refused(static fn () => pg_connect('host=127.0.0.1 port=1'))],
    'phar' => [
        'use' => static function () {
            $file = sys_get_temp_dir() . '/' . uniqid('archive') . '.tar';
            $archive = new PharData($file);
            $archive->addFromString('a.txt', 'text');
            unset($archive);
            $text = file_get_contents("phar://$file/a.txt");
            PharData::unlinkArchive($file);
            return $text;
        },
        'change' => static fn () => Phar::interceptFileFuncs(),
    ],
    'posix' => [
        'use' => static fn () => posix_getuid(),
        'change' => static fn () => @posix_kill(-1234567, 0),
        'look' => static fn () => posix_get_last_error(),
    ],
    'pspell' => ['use' => static fn () => get_debug_type(pspell_config_create('en'))],
    'readline' => [
        'use' => static fn () => is_string(readline_info('library_version')),
        'change' => static fn () => readline_add_history('left'),
        'look' => static fn () => function_exists('readline_list_history') ? readline_list_history() : null,
    ],
    'shmop' => [
        'use' => static function () {
            $memory = shmop_open(0x4EA, 'c', 0644, 16);
            shmop_write($memory, 'text', 0);
            return shmop_read($memory, 0, 4);
        },
        'change' => static function () {
            $memory = shmop_open(0x4EB, 'c', 0644, 16);
            shmop_write($memory, 'left', 0);
        },
        'look' => static fn () => ($memory = @shmop_open(0x4EB, 'a', 0, 0)) ? shmop_read($memory, 0, 4) : null,
        'shared' => 'System V memory',
    ],
    'simplexml' => ['use' => static fn () => (string) simplexml_load_string($xml)->b],
    'snmp' => [
        'use' => static fn () => $refused(static fn () => snmp2_get('127.0.0.1:1', 'public', '.1.3.6.1', 10000, 0)),
        'change' => static fn () => [snmp_set_quick_print(true), snmp_set_oid_output_format(SNMP_OID_OUTPUT_FULL)],
        'look' => static fn () => snmp_get_quick_print(),
    ],
    'soap' => [
        'use' => static fn () => (new SoapVar('text', XSD_STRING))->enc_type,
        'change' => static fn () => new SoapClient(null, ['location' => 'http://127.0.0.1:1', 'uri' => 'urn:a']),
    ],
    'sockets' => [
        'use' => static function () {
            socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pair);
            socket_write($pair[0], 'text');
            return socket_read($pair[1], 4);
        },
        'change' => static fn () => [@socket_connect($socket = socket_create(AF_INET, SOCK_STREAM, SOL_TCP), '127.0.0.1', 1), $socket],
        'look' => static fn () => socket_last_error(),
    ],
    'sqlite3' => [
        'use' => static fn () => (new SQLite3(':memory:'))->querySingle('SELECT 6 * 7'),
        'change' => static fn () => new SQLite3(':memory:'),
    ],
    'sysvmsg' => [
        'use' => static function () {
            $queue = msg_get_queue(0x4EC);
            msg_send($queue, getmypid(), 'text');
            msg_receive($queue, getmypid(), $type, 100, $message);
            return $message;
        },
        'change' => static fn () => msg_send(msg_get_queue(0x4ED), 1, 'left') ? null : null,
        'look' => static fn () => msg_stat_queue(msg_get_queue(0x4ED))['msg_qnum'] > 0,
        'shared' => 'System V messages',
    ],
    'sysvsem' => [
        'use' => static fn () => sem_acquire($semaphore = sem_get(0x4EE)) && sem_release($semaphore),
        'change' => static fn () => [sem_acquire($semaphore = sem_get(0x4EF), true), $semaphore],
        'look' => static fn () => sem_acquire($semaphore = sem_get(0x4EF), true) && sem_release($semaphore),
    ],
    'sysvshm' => [
        'use' => static function () {
            $memory = shm_attach(0x4F0, 1000);
            shm_put_var($memory, 1, 'text');
            return shm_get_var($memory, 1);
        },
        'change' => static fn () => shm_put_var(shm_attach(0x4F1, 1000), 1, 'left') ? null : null,
        'look' => static fn () => shm_has_var(shm_attach(0x4F1, 1000), 1),
        'shared' => 'System V memory',
    ],
    'tidy' => [
        'use' => static fn () => str_contains(tidy_repair_string('<p>text'), '<p>text</p>'),
        'change' => static fn () => tidy_parse_string('<p>text'),
    ],
    'tokenizer' => ['use' => static fn () => count(token_get_all('<?php echo 1;'))],
    'xml' => [
        'use' => static fn () => xml_parse_into_struct(xml_parser_create(), $xml, $values) + count($values),
        'change' => static fn () => xml_parser_create(),
    ],
    'xmlreader' => ['use' => static fn () => ($reader = XMLReader::XML($xml)) && $reader->read() ? $reader->name : null],
    'xmlwriter' => [
        'use' => static function () {
            $writer = new XMLWriter();
            $writer->openMemory();
            $writer->writeElement('a', 'text');
            return $writer->outputMemory();
        },
        'change' => static fn () => xmlwriter_open_uri('/tmp/left.xml'),
    ],
    'xsl' => [
        'use' => static function () use ($xml) {
            $style = new DOMDocument();
            $style->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:output method="text"/></xsl:stylesheet>');
            $document = new DOMDocument();
            $document->loadXML($xml);
            $processor = new XSLTProcessor();
            $processor->importStylesheet($style);
            return $processor->transformToXml($document);
        },
        'change' => static fn () => new XSLTProcessor(),
    ],
    'zip' => [
        'use' => static function () {
            $file = tempnam(sys_get_temp_dir(), 'zip');
            $archive = new ZipArchive();
            $archive->open($file, ZipArchive::OVERWRITE);
            $archive->addFromString('a.txt', 'text');
            $archive->close();
            $archive->open($file);
            $text = $archive->getFromName('a.txt');
            unlink($file);
            return $text;
        },
        'change' => static fn () => [$archive = new ZipArchive(), $archive->open('/tmp/left.zip', ZipArchive::CREATE)],
    ],
];
