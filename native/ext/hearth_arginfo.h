/* Kept in step with hearth.stub.php by hand (php-src's gen_stub.php is not part of a PHP installation). */
#ifndef HEARTH_EXT_ARGINFO_H
#define HEARTH_EXT_ARGINFO_H

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_handle_request, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_await_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_finish_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_log, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
ZEND_ARG_TYPE_MASK(0, level, MAY_BE_LONG | MAY_BE_STRING, "\"info\"")
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_frankenphp_log, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "FRANKENPHP_LOG_LEVEL_INFO")
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_publish, 0, 3, _IS_BOOL, 0)
ZEND_ARG_TYPE_MASK(0, channels, MAY_BE_ARRAY | MAY_BE_STRING, NULL)
ZEND_ARG_TYPE_INFO(0, event, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, data, IS_MIXED, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, exceptSocket, IS_STRING, 1, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_can_publish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_purge, 0, 0, _IS_BOOL, 0)
ZEND_ARG_VARIADIC_TYPE_INFO(0, tags, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_socket_send, 0, 2, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, id, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, data, IS_STRING, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, binary, _IS_BOOL, 0, "false")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_socket_close, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, id, IS_STRING, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, code, IS_LONG, 0, "1000")
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, reason, IS_STRING, 0, "\"\"")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_on_worker_start, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_keep_connection, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, connection, IS_OBJECT, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_keep_files, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_add_server_variables, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, values, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_remember_statics, 0, 2, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, folder, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, foreign, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_put_back_statics, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_remember_properties, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, objects, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_hearth_put_back_properties, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()

ZEND_FUNCTION(hearth_handle_request);
ZEND_FUNCTION(hearth_await_request);
ZEND_FUNCTION(hearth_finish_request);
ZEND_FUNCTION(hearth_request_headers);
ZEND_FUNCTION(hearth_response_headers);
ZEND_FUNCTION(headers_send);
ZEND_FUNCTION(hearth_log);
ZEND_FUNCTION(frankenphp_log);
ZEND_FUNCTION(hearth_publish);
ZEND_FUNCTION(hearth_can_publish);
ZEND_FUNCTION(hearth_purge);
ZEND_FUNCTION(hearth_socket_send);
ZEND_FUNCTION(hearth_socket_close);
ZEND_FUNCTION(hearth_on_worker_start);
ZEND_FUNCTION(hearth_keep_connection);
ZEND_FUNCTION(hearth_keep_files);
ZEND_FUNCTION(hearth_add_server_variables);
ZEND_FUNCTION(hearth_remember_statics);
ZEND_FUNCTION(hearth_put_back_statics);
ZEND_FUNCTION(hearth_remember_properties);
ZEND_FUNCTION(hearth_put_back_properties);

/* clang-format off */
static const zend_function_entry ext_functions[] = {
    ZEND_FE(hearth_handle_request, arginfo_hearth_handle_request)
    ZEND_FALIAS(frankenphp_handle_request, hearth_handle_request, arginfo_hearth_handle_request)
    ZEND_FE(hearth_await_request, arginfo_hearth_await_request)
    ZEND_FE(hearth_finish_request, arginfo_hearth_finish_request)
    ZEND_FALIAS(frankenphp_finish_request, hearth_finish_request, arginfo_hearth_finish_request)
    ZEND_FALIAS(fastcgi_finish_request, hearth_finish_request, arginfo_hearth_finish_request)
    ZEND_FE(hearth_request_headers, arginfo_hearth_headers)
    ZEND_FALIAS(frankenphp_request_headers, hearth_request_headers, arginfo_hearth_headers)
    ZEND_FALIAS(apache_request_headers, hearth_request_headers, arginfo_hearth_headers)
    ZEND_FALIAS(getallheaders, hearth_request_headers, arginfo_hearth_headers)
    ZEND_FE(hearth_response_headers, arginfo_hearth_headers)
    ZEND_FALIAS(frankenphp_response_headers, hearth_response_headers, arginfo_hearth_headers)
    ZEND_FALIAS(apache_response_headers, hearth_response_headers, arginfo_hearth_headers)
    ZEND_FE(headers_send, arginfo_headers_send)
    ZEND_FE(hearth_log, arginfo_hearth_log)
    ZEND_FE(frankenphp_log, arginfo_frankenphp_log)
    ZEND_FE(hearth_publish, arginfo_hearth_publish)
    ZEND_FE(hearth_can_publish, arginfo_hearth_can_publish)
    ZEND_FE(hearth_purge, arginfo_hearth_purge)
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

#endif
