/* See libcurl.h. ext-curl calls libcurl through slots that the dynamic loader has filled. They are the relocations of
 * curl.so, or of the program itself if ext-curl is built in. Those slots, and no others, are overwritten. */
#include "ext/curl/libcurl.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { SLOT_OF_CALL = R_X86_64_JUMP_SLOT, SLOT_OF_ADDRESS = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { SLOT_OF_CALL = R_AARCH64_JUMP_SLOT, SLOT_OF_ADDRESS = R_AARCH64_GLOB_DAT };
#else
enum { SLOT_OF_CALL = -1, SLOT_OF_ADDRESS = -1 };
#endif

struct libcurl libcurl;
unsigned libcurl_version;

/* The oldest supported libcurl: it passes whole header lines to the callback, and has CURLINFO_*_T. */
enum { OLDEST = 0x074400 };

struct function {
    const char *name;
    size_t member; /* its offset in struct libcurl */
};

#define FUNCTION(name) {"curl_" #name, offsetof(struct libcurl, name)},
static const struct function replaced[] = {LIBCURL_REPLACED(FUNCTION)};
static const struct function called[] = {LIBCURL_CALLED(FUNCTION)};
#undef FUNCTION
enum {
    REPLACED_COUNT = sizeof replaced / sizeof *replaced,
    CALLED_COUNT = sizeof called / sizeof *called,
    SLOTS = 3 * REPLACED_COUNT
};

static struct slot {
    void **at;
    void *original;
    const struct function *function;
} slots[SLOTS];
static size_t slot_count;
static void *scope;

/* The object file that holds ext-curl. */
struct object {
    uintptr_t inside; /* asked for */
    const char *name;
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    uintptr_t read_only, read_only_end; /* made so by the loader when it was done */
};

static int find_object(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    struct object *object = arg;
    struct object found = {object->inside, info->dlpi_name, info->dlpi_addr, NULL, 0, 0};
    bool here = false;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            here |= object->inside >= start && object->inside < start + header->p_memsz;
        } else if (header->p_type == PT_DYNAMIC) {
            found.dynamic = (const void *)start;
        } else if (header->p_type == PT_GNU_RELRO) {
            found.read_only = start;
            found.read_only_end = start + header->p_memsz;
        }
    }
    if (here && found.dynamic != NULL) {
        *object = found;
        return 1;
    }
    return 0;
}

struct relocations {
    const ElfW(Rela) * first;
    size_t bytes;
};

static void note_slots(const struct object *object, struct relocations relocations,
    const ElfW(Sym) * symbols, const char *strings) {
    for (size_t i = 0; i < relocations.bytes / sizeof *relocations.first; i++) {
        const ElfW(Rela) *relocation = &relocations.first[i];
        int type = (int)ELF64_R_TYPE(relocation->r_info);
        if (type != SLOT_OF_CALL && type != SLOT_OF_ADDRESS) {
            continue;
        }
        const char *name = strings + symbols[ELF64_R_SYM(relocation->r_info)].st_name;
        for (size_t f = 0; f < REPLACED_COUNT && slot_count < SLOTS; f++) {
            if (strcmp(name, replaced[f].name) == 0) {
                void **at = (void **)(object->base + relocation->r_offset);
                slots[slot_count++] = (struct slot){at, *at, &replaced[f]};
            }
        }
    }
}

/* glibc's loader has made it an address, musl's has left an offset. */
static const void *address_in(const struct object *object, ElfW(Addr) value) {
    return (const void *)(value < object->base ? object->base + value : value);
}

static void find_slots(const struct object *object) {
    struct relocations calls = {NULL, 0};
    struct relocations others = {NULL, 0};
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    slot_count = 0;
    for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_JMPREL:
            calls.first = address_in(object, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            calls.bytes = entry->d_un.d_val;
            break;
        case DT_RELA:
            others.first = address_in(object, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            others.bytes = entry->d_un.d_val;
            break;
        case DT_SYMTAB:
            symbols = address_in(object, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            strings = address_in(object, entry->d_un.d_ptr);
            break;
        default:
            break;
        }
    }
    if (symbols != NULL && strings != NULL) {
        note_slots(object, calls, symbols, strings);
        note_slots(object, others, symbols, strings);
    }
}

static bool every_function_has_a_slot(void) {
    for (size_t f = 0; f < REPLACED_COUNT; f++) {
        size_t i = 0;
        while (i < slot_count && slots[i].function != &replaced[f]) {
            i++;
        }
        if (i == slot_count) {
            return false;
        }
    }
    return true;
}

static bool look_up(const struct function *functions, size_t count) {
    for (size_t f = 0; f < count; f++) {
        void *found = dlsym(scope, functions[f].name);
        if (found == NULL) {
            return false;
        }
        memcpy((char *)&libcurl + functions[f].member, &found, sizeof found);
    }
    return true;
}

static bool fill(const struct slot *slot, void *value, bool read_only) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)slot->at & ~(page - 1));
    if (read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    *slot->at = value;
    if (read_only) {
        mprotect(start, page, PROT_READ);
    }
    return true;
}

static struct object object;

static bool is_read_only(const struct slot *slot) {
    /* the loader protects whole pages only: mprotect() on the last, shared one does no harm but must not leave it read-only */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)slot->at;
    return at >= (object.read_only & ~(page - 1)) && at < (object.read_only_end & ~(page - 1));
}

const char *libcurl_take_over(const void *inside) {
    object = (struct object){(uintptr_t)inside, NULL, 0, NULL, 0, 0};
    if (dl_iterate_phdr(find_object, &object) != 1) {
        return "the file of ext-curl was not found in memory";
    }
    bool program = object.name == NULL || object.name[0] == '\0';
    scope = dlopen(program ? NULL : object.name, RTLD_LAZY | RTLD_NOLOAD);
    if (scope == NULL || !look_up(replaced, REPLACED_COUNT) || !look_up(called, CALLED_COUNT)) {
        return "libcurl is too old, or linked in statically";
    }
    const curl_version_info_data *version = libcurl.version_info(CURLVERSION_NOW);
    if (version->version_num < OLDEST || (version->features & CURL_VERSION_UNIX_SOCKETS) == 0) {
        return "libcurl is too old, or cannot use unix sockets";
    }
    /* asking again would cost as much as sending a call */
    libcurl_version = version->version_num;
    find_slots(&object);
    if (!every_function_has_a_slot()) {
        return "ext-curl calls libcurl in an unknown way";
    }
    for (size_t i = 0; i < slot_count; i++) {
        void *value;
        memcpy(
            &value, (const char *)&libcurl_replacements + slots[i].function->member, sizeof value);
        if (!fill(&slots[i], value, is_read_only(&slots[i]))) {
            slot_count = i;
            libcurl_give_back();
            return "ext-curl's calls cannot be redirected";
        }
    }
    return NULL;
}

void libcurl_give_back(void) {
    while (slot_count > 0) {
        slot_count--;
        fill(&slots[slot_count], slots[slot_count].original, is_read_only(&slots[slot_count]));
    }
    if (scope != NULL) {
        dlclose(scope);
        scope = NULL;
    }
}

void *libcurl_neighbour(const char *name) {
    return scope != NULL ? dlsym(scope, name) : NULL;
}
