/* The extension as a separate library, hearth-8.x.so, for php-fpm and the command line. It is not
 * part of the worker.
 *
 * Promises
 * - Defines only functions with Hearth's own names, not those of other servers.
 * - In a worker program, which has the extension inside, it adds nothing: both may share php-fpm's settings.
 */
#include "ext/host.h"

#include "ext/hearth_arginfo.h"

/* clang-format off */
static const zend_function_entry own_functions[] = {
    ZEND_FE(hearth_handle_request, arginfo_hearth_handle_request)
    ZEND_FE(hearth_finish_request, arginfo_hearth_finish_request)
    ZEND_FE(hearth_request_headers, arginfo_hearth_headers)
    ZEND_FE(hearth_response_headers, arginfo_hearth_headers)
    ZEND_FE(hearth_log, arginfo_hearth_log)
    ZEND_FE(hearth_socket_send, arginfo_hearth_socket_send)
    ZEND_FE(hearth_socket_close, arginfo_hearth_socket_close)
    ZEND_FE(hearth_on_worker_start, arginfo_hearth_on_worker_start)
    ZEND_FE(hearth_keep_connection, arginfo_hearth_keep_connection)
    ZEND_FE(hearth_keep_files, arginfo_hearth_keep_files)
    ZEND_FE(hearth_add_server_variables, arginfo_hearth_add_server_variables)
    ZEND_FE(hearth_remember_statics, arginfo_hearth_remember_statics)
    ZEND_FE(hearth_put_back_statics, arginfo_hearth_put_back_statics)
    ZEND_FE(hearth_remember_properties, arginfo_hearth_remember_properties)
    ZEND_FE(hearth_put_back_properties, arginfo_hearth_put_back_properties)
    ZEND_FE_END
};
/* clang-format on */

/* What PHP gets where it has the extension already: it would warn of a second one with that name. */
static zend_module_entry nothing = {
    STANDARD_MODULE_HEADER,
    "hearth (shared)",
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    HEARTH_VERSION,
    STANDARD_MODULE_PROPERTIES,
};

ZEND_DLEXPORT zend_module_entry *get_module(void) {
    const zend_module_entry *own = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("hearth"));
    if (own != NULL && own->handle == NULL) {
        return &nothing;
    }
    (void)ext_functions;
    (void)arginfo_headers_send;
    hearth_module_entry.functions = own_functions;
    return &hearth_module_entry;
}
