/* A memory error that the tracking of written pages cannot see: a request writes into the snapshot engine's own list, so that the engine no longer
 * restores a page that the request has written. Only the comparison of all memory finds that. Built by the test with the engine's header:
 * gcc -shared -fPIC -D_GNU_SOURCE -I native -o saboteur.so saboteur.c */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "snapshot/engine.h"

/* A page of a library's variables that each request writes. */
static struct {
    _Alignas(65536) char before;
    _Alignas(65536) int count;
    _Alignas(65536) char after;
} victim = {1, 0, 1};

static struct engine **found;

/* Where the worker's code is: the program itself, which is the first, or the library that PHP's program has loaded. */
struct place {
    const char *file;
    uint64_t base;
};

static int find_place(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    struct place *place = arg;
    bool is_library = strstr(info->dlpi_name, "/hearth-preload-") != NULL;
    if (is_library || place->file == NULL) {
        *place = (struct place){is_library ? info->dlpi_name : "/proc/self/exe", info->dlpi_addr};
    }
    return is_library;
}

/* Finds the engine's pointer in the worker's table of symbols. Returns 0, or -1 if it has none. */
int saboteur_boot(void) {
    struct place place = {0};
    dl_iterate_phdr(find_place, &place);
    int fd = open(place.file, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        return -1;
    }
    size_t size = (size_t)status.st_size;
    const char *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        return -1;
    }
    const ElfW(Ehdr) *head = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const ElfW(Sym) *symbols = (const void *)(file + sections[i].sh_offset);
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
            if (strcmp(names + symbols[s].st_name, "engine") == 0) {
                found = (struct engine **)(place.base + symbols[s].st_value);
            }
        }
    }
    munmap((void *)file, size);
    return found != NULL ? 0 : -1;
}

/* Every restored request gets 1. */
int saboteur_count(void) {
    return ++victim.count;
}

/* The engine does not restore the page of the counter from now on. Returns how many pages that concerns: 1, or 0 if the page is not known yet. */
int saboteur_hide(void) {
    struct engine *e = *found;
    for (uint64_t i = 0; i < e->known_count; i++) {
        if (e->known[i].live == (char *)PAGE_DOWN(&victim.count)) {
            e->known[i] = e->known[--e->known_count];
            return 1;
        }
    }
    return 0;
}
