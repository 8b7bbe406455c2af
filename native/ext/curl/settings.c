/* See settings.h, and egress.h for the life cycle. */
#include "ext/curl/settings.h"

#include <SAPI.h>
#include <fcntl.h>
#include <php.h>
#include <php_ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "ext/broker/exchange.h"
#include "ext/broker/peer.h"
#include "ext/curl/egress.h"
#include "ext/curl/fast.h"
#include "ext/curl/libcurl.h"
#include "ext/host.h"

enum { TOKEN_LEN = 64 };

static struct {
    char *egress;
    bool intercept_curl;
    bool frames;
} settings;

/* HEARTH_EGRESS is read when the process starts, because php-fpm clears the environment of its
 * children. Under php-fpm it is read at the first request, after `env[]` of the pool's file was
 * applied. */
static char *from_environment;
static bool tried, hooked;
static const char *why_direct = "off";
static char token[TOKEN_LEN + 1];
static struct timespec token_time;
static pid_t noticed_by;

/* clang-format off */
static PHP_INI_MH(on_egress) {
    (void)entry; (void)mh_arg1; (void)mh_arg2; (void)mh_arg3; (void)stage;
    settings.egress = new_value != NULL ? ZSTR_VAL(new_value) : NULL;
    token[0] = '\0';
    return SUCCESS;
}

static PHP_INI_MH(on_intercept) {
    (void)entry; (void)mh_arg1; (void)mh_arg2; (void)mh_arg3; (void)stage;
    settings.intercept_curl = zend_ini_parse_bool(new_value);
    return SUCCESS;
}

static PHP_INI_MH(on_frames) {
    (void)entry; (void)mh_arg1; (void)mh_arg2; (void)mh_arg3; (void)stage;
    settings.frames = zend_ini_parse_bool(new_value);
    return SUCCESS;
}

PHP_INI_BEGIN()
    PHP_INI_ENTRY("hearth.egress", "auto", PHP_INI_SYSTEM, on_egress)
    PHP_INI_ENTRY("hearth.egress_frames", "1", PHP_INI_SYSTEM, on_frames)
    PHP_INI_ENTRY("hearth.intercept_curl", "1", PHP_INI_SYSTEM, on_intercept)
PHP_INI_END()
/* clang-format on */

static bool is_off(const char *value) {
    /* the ini parser makes `off` an empty string */
    return value == NULL || *value == '\0' || strcasecmp(value, "off") == 0 ||
           strcmp(value, "0") == 0;
}

const char *settings_broker(void) {
    const char *path = settings.egress;
    if (is_off(path)) {
        return NULL;
    }
    if (strcasecmp(path, "auto") == 0) {
        path = from_environment;
    }
    if (is_off(path) || path[0] != '/' ||
        strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path) {
        return NULL;
    }
    return path;
}

const char *settings_socket(void) {
    return settings.intercept_curl ? settings_broker() : NULL;
}

bool settings_frames(void) {
    return settings.frames;
}

/* `egress.token` beside the socket. */
static bool token_path(char *path, size_t room) {
    const char *file = settings_broker();
    const char *slash = file != NULL ? strrchr(file, '/') : NULL;
    return slash != NULL &&
           snprintf(path, room, "%.*s/egress.token", (int)(slash - file), file) < (int)room;
}

static void read_token(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    token[0] = '\0';
    if (fd < 0) {
        return;
    }
    ssize_t len = read(fd, token, TOKEN_LEN);
    close(fd);
    token[len == TOKEN_LEN && strspn(token, "0123456789abcdefABCDEF") >= TOKEN_LEN ? TOKEN_LEN
                                                                                   : 0] = '\0';
}

const char settings_untrusted[] = "an untrusted user listens there: neither root, nor "
                                  "PHP's own, nor HEARTH_EGRESS_OWNER";

/* A restarted broker writes a new token, so the file is checked before each call, which takes a
 * microsecond. The socket's file is checked too, because libcurl itself connects to it. */
const char *settings_token(void) {
    char path[sizeof((struct sockaddr_un *)0)->sun_path + 16];
    struct stat file;
    if (settings_broker() != NULL && !peer_of_file_is_trusted(settings_broker())) {
        settings_notice(settings_untrusted);
        return NULL;
    }
    if (!token_path(path, sizeof path) || stat(path, &file) != 0) {
        settings_notice("there is no token beside the socket");
        return NULL;
    }
    if (token[0] == '\0' || file.st_mtim.tv_sec != token_time.tv_sec ||
        file.st_mtim.tv_nsec != token_time.tv_nsec) {
        read_token(path);
        token_time = file.st_mtim;
    }
    if (token[0] == '\0') {
        settings_notice("its token cannot be read");
        return NULL;
    }
    return token;
}

void settings_forget_token(void) {
    token[0] = '\0';
}

/* Appends a field with a variable of the request, if there is one of at least `least` and at most `most` plain characters. */
static bool add_variable(
    char *out, const char *field, const char *name, size_t least, size_t most) {
    char *value = sapi_getenv(name, strlen(name));
    if (value == NULL) {
        return false;
    }
    size_t len = strlen(value);
    bool fits = len >= least && len <= most;
    for (size_t i = 0; fits && i < len; i++) {
        fits = value[i] >= ' ' && value[i] <= '~';
    }
    if (fits) {
        sprintf(out + strlen(out), "%s: %s\r\n", field, value);
    }
    efree(value);
    return fits;
}

const char *settings_trace(void) {
    enum { PARENT = 55, STATE = 512 }; /* W3C Trace Context, 3.2.2 and 3.3.1.5 */
    static char fields[PARENT + STATE + 64];
    fields[0] = '\0';
    if (add_variable(fields, "Hearth-Traceparent", "HTTP_TRACEPARENT", PARENT, PARENT)) {
        add_variable(fields, "Hearth-Tracestate", "HTTP_TRACESTATE", 1, STATE);
    }
    return fields;
}

void settings_notice(const char *why) {
    char line[512];
    if (noticed_by == getpid()) {
        return;
    }
    noticed_by = getpid();
    snprintf(line, sizeof line, "hearth: no egress broker at %s (%s): calls go directly",
        settings_broker(), why);
    if (hearth_host == NULL) {
        php_log_err_with_severity(line, LOG_NOTICE);
        return;
    }
    zend_string *text = zend_string_init(line, strlen(line), 0);
    hearth_host->log(LOG_NOTICE, text, ZSTR_EMPTY_ALLOC());
    zend_string_release(text);
}

/* An address inside ext-curl, or NULL: it is not there. */
static const void *inside_curl(void) {
    const zend_module_entry *module =
        zend_hash_str_find_ptr(&module_registry, "curl", strlen("curl"));
    if (module == NULL || module->functions == NULL) {
        return NULL;
    }
    /* its own table: another extension may have put itself into the engine's */
    return (const void *)module->functions[0].handler;
}

/* Once, as soon as there is a broker's path. */
static void take_over(void) {
    const void *curl = inside_curl();
    tried = true;
    why_direct = curl != NULL ? libcurl_take_over(curl) : "ext-curl is not loaded";
    hooked = why_direct == NULL;
}

static void read_environment(void) {
    const char *said = getenv("HEARTH_EGRESS");
    if (from_environment == NULL && said != NULL && *said != '\0') {
        from_environment = strdup(said);
    }
    if (getenv("HEARTH_EGRESS_OWNER") != NULL) {
        peer_name(getenv("HEARTH_EGRESS_OWNER"));
    }
}

void egress_startup(int module_number) {
    zend_register_ini_entries(ini_entries, module_number);
    read_environment();
    if (settings_socket() != NULL) {
        take_over();
    }
}

void egress_activate(void) {
    read_environment();
    if (tried) {
        return;
    }
    if (settings_socket() != NULL) {
        take_over();
    }
}

const char *egress_why_direct(void) {
    return why_direct;
}

void egress_connect(void) {
    if (hooked && settings_frames() && settings_socket() != NULL) {
        exchange_connect(settings_socket(), settings_token);
    }
}

void egress_settle(void) {
    exchange_settle();
}

unsigned long egress_fast_calls(void) {
    return fast_count();
}

void egress_shutdown(int module_number) {
    if (hooked) {
        handles_drop_spare();
        libcurl_give_back();
        hooked = false;
    }
    free(from_environment);
    from_environment = NULL;
    zend_unregister_ini_entries(module_number);
}
