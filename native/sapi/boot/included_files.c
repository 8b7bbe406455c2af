/* See included_files.h. */
#include "sapi/boot/included_files.h"

#include <php.h>

#include "sapi/output/log.h"
#include "wire/frame.h"

void included_files_report(void) {
    size_t count = 0;
    struct frame_text *files =
        safe_emalloc(zend_hash_num_elements(&EG(included_files)) + 1, sizeof *files, 0);
    zend_string *path;
    ZEND_HASH_FOREACH_STR_KEY(&EG(included_files), path) {
        if (path != NULL && ZSTR_LEN(path) > 0 && ZSTR_VAL(path)[0] == '/') {
            files[count++] = (struct frame_text){.at = ZSTR_VAL(path), .len = ZSTR_LEN(path)};
        }
    }
    ZEND_HASH_FOREACH_END();
    struct frame_buffer frame = {0};
    frame_write_files(&frame, files, count);
    log_frame(&frame);
    frame_buffer_free(&frame);
    efree(files);
}
