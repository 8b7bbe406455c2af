/* See info.h. PHP itself answers: the same functions that an application would ask. */
#include "sapi/boot/info.h"

#include <SAPI.h>
#include <php.h>
#include <php_main.h>
#include <php_output.h>
#include <stdbool.h>

#include "sapi/sapi_module.h"

static const char code[] =
    "(static function () {"
    "  $extensions = [];"
    "  foreach (array_merge(get_loaded_extensions(), get_loaded_extensions(true)) as $name) {"
    "    $extensions[$name] = (string) phpversion($name);"
    "  }"
    "  ksort($extensions, SORT_FLAG_CASE | SORT_STRING);"
    "  $scanned = (string) php_ini_scanned_files();"
    "  $opcache = function_exists('opcache_get_status') ? @opcache_get_status(false) : null;"
    "  echo json_encode(["
    "    'php_version' => PHP_VERSION,"
    "    'sapi' => PHP_SAPI,"
    "    'api' => %d,"
    "    'zts' => (bool) PHP_ZTS,"
    "    'debug' => (bool) PHP_DEBUG,"
    "    'extensions' => $extensions,"
    "    'ini_file' => php_ini_loaded_file() ?: null,"
    "    'ini_scanned' => array_values(array_filter(array_map('trim', explode(',', $scanned)))),"
    "    'ini' => function_exists('ini_get_all') ? array_keys(ini_get_all(null, false)) : [],"
    "    'opcache' => ['present' => $opcache !== null, 'enabled' => (bool) "
    "($opcache['opcache_enabled'] ?? false)],"
    "    'apcu' => function_exists('apcu_enabled') && apcu_enabled(),"
    "  ], JSON_PRETTY_PRINT | JSON_UNESCAPED_SLASHES), \"\\n\";"
    "})();";

int info_print(void) {
    volatile bool failed = true;
    module_clear_request_info();
    if (php_request_startup() == FAILURE) {
        return 1;
    }
    SG(request_info).no_headers = 1;
    zend_try {
        char *text;
        spprintf(&text, 0, code, ZEND_MODULE_API_NO);
        failed = zend_eval_string(text, NULL, "hearth") == FAILURE;
        efree(text);
        php_output_end_all();
    }
    zend_end_try();
    php_request_shutdown(NULL);
    return failed ? 1 : 0;
}
