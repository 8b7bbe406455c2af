/* The first code of a program of the tarball: loads the tarball's own dynamic loader, which lies at a path relative to the program.
 *
 * The kernel takes the loader of a program (PT_INTERP) by an absolute path only. packaging/tarball/graft.py therefore hides that header from the
 * kernel and makes this code the program's entry. It maps the loader as the kernel would, shows it the header again and jumps to it.
 *
 * Promises
 * - No libc, no relocations, no memory beside the stack: it runs before any of them is there.
 * - The program keeps its own name, /proc/self/exe, arguments and environment. It may execute itself again.
 * - x86-64 only. */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096UL
#define PAGE_DOWN(at) ((at) & ~(PAGE - 1))
#define PAGE_UP(at) PAGE_DOWN((at) + PAGE - 1)
enum { PATH_LEN = 4096, STANDARD_ERROR = 2, CANNOT_LOAD = 127 };

/* graft.py writes these. Addresses are those of the file. */
struct parameters {
    uint64_t self;    /* of this structure */
    uint64_t entry;   /* the program's own entry */
    char loader[240]; /* relative to the program's folder */
};
__attribute__((
    section(".parameters"), visibility("hidden"), used)) volatile struct parameters parameters;

__asm__(".globl _start\n"
        ".hidden _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rbx\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call load\n"
        "    mov %rbx, %rsp\n"
        "    xor %edx, %edx\n"
        "    jmp *%rax\n");

static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static size_t length_of(const char *text) {
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    return length;
}

__attribute__((noreturn)) static void fail(const char *path) {
    static const char before[] = "error: cannot load ";
    static const char after[] = ": the folder of this program is not complete\n";
    call(SYS_write, STANDARD_ERROR, (long)before, sizeof before - 1, 0, 0, 0);
    call(SYS_write, STANDARD_ERROR, (long)path, (long)length_of(path), 0, 0, 0);
    call(SYS_write, STANDARD_ERROR, (long)after, sizeof after - 1, 0, 0, 0);
    for (;;) {
        call(SYS_exit_group, CANNOT_LOAD, 0, 0, 0, 0, 0);
    }
}

/* The loader's path into `path`: beside /proc/self/exe, or beside the path that was executed if there is no /proc. */
static void find_loader(char *path, const char *executed) {
    long length = call(SYS_readlink, (long)"/proc/self/exe", (long)path,
        PATH_LEN - sizeof parameters.loader, 0, 0, 0);
    if (length <= 0) {
        length = 0;
        while (executed != NULL && executed[length] != '\0' &&
               length < PATH_LEN - (long)sizeof parameters.loader) {
            path[length] = executed[length];
            length++;
        }
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    size_t at = 0;
    do {
        path[length++] = parameters.loader[at];
    } while (parameters.loader[at++] != '\0');
}

static int protection(const Elf64_Phdr *segment) {
    return ((segment->p_flags & PF_R) ? PROT_READ : 0) |
           ((segment->p_flags & PF_W) ? PROT_WRITE : 0) |
           ((segment->p_flags & PF_X) ? PROT_EXEC : 0);
}

static void map(
    uint64_t at, size_t size, int access, long file, uint64_t offset, const char *path) {
    int flags = MAP_PRIVATE | MAP_FIXED | (file < 0 ? MAP_ANONYMOUS : 0);
    if (call(SYS_mmap, (long)at, (long)size, access, flags, file, (long)offset) != (long)at) {
        fail(path);
    }
}

/* Maps the loader. Returns its base address; its entry into `entry`. */
static uint64_t map_loader(const char *path, uint64_t *entry) {
    _Alignas(16) char head[2048];
    long file = call(SYS_open, (long)path, 02000000 /* O_CLOEXEC */, 0, 0, 0, 0);
    if (file < 0 ||
        call(SYS_read, file, (long)head, sizeof head, 0, 0, 0) < (long)sizeof(Elf64_Ehdr)) {
        fail(path);
    }
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)head;
    const Elf64_Phdr *segments = (const Elf64_Phdr *)(head + elf->e_phoff);
    if (elf->e_type != ET_DYN || elf->e_phoff + elf->e_phnum * sizeof *segments > sizeof head) {
        fail(path);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < elf->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD) {
            end = PAGE_UP(segments[i].p_vaddr + segments[i].p_memsz);
        }
    }
    long base = call(SYS_mmap, 0, (long)end, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base < 0) {
        fail(path);
    }
    for (size_t i = 0; i < elf->e_phnum; i++) {
        const Elf64_Phdr *segment = &segments[i];
        if (segment->p_type != PT_LOAD) {
            continue;
        }
        uint64_t start = (uint64_t)base + segment->p_vaddr;
        uint64_t filled = start + segment->p_filesz;
        uint64_t limit = PAGE_UP(start + segment->p_memsz);
        map(PAGE_DOWN(start), filled - PAGE_DOWN(start), protection(segment), file,
            PAGE_DOWN(segment->p_offset), path);
        if (segment->p_memsz > segment->p_filesz) {
            for (uint64_t at = filled; at < PAGE_UP(filled); at++) {
                *(volatile char *)at = 0;
            }
            if (limit > PAGE_UP(filled)) {
                map(PAGE_UP(filled), limit - PAGE_UP(filled), protection(segment), -1, 0, path);
            }
        }
    }
    call(SYS_close, file, 0, 0, 0, 0, 0);
    *entry = (uint64_t)base + elf->e_entry;
    return (uint64_t)base;
}

/* `stack` as the kernel has filled it: argc, argv, environment, auxiliary vector. Returns the loader's entry. */
__attribute__((used, visibility("hidden"))) uint64_t load(uint64_t *stack) {
    uint64_t bias = (uint64_t)&parameters - parameters.self;
    uint64_t *at = stack + 1 + stack[0] + 1;
    while (*at != 0) {
        at++;
    }
    Elf64_auxv_t *vector = (Elf64_auxv_t *)(at + 1);
    Elf64_auxv_t *base = NULL;
    Elf64_auxv_t *start = NULL;
    Elf64_Phdr *headers = NULL;
    const char *executed = NULL;
    size_t count = 0;
    for (; vector->a_type != AT_NULL; vector++) {
        switch (vector->a_type) {
        case AT_BASE:
            base = vector;
            break;
        case AT_ENTRY:
            start = vector;
            break;
        case AT_PHDR:
            headers = (Elf64_Phdr *)vector->a_un.a_val;
            break;
        case AT_PHNUM:
            count = vector->a_un.a_val;
            break;
        case AT_EXECFN:
            executed = (const char *)vector->a_un.a_val;
            break;
        default:
            break;
        }
    }
    char path[PATH_LEN];
    find_loader(path, executed);
    if (base == NULL || start == NULL || headers == NULL) {
        fail(path);
    }
    uint64_t entry = 0;
    base->a_un.a_val = map_loader(path, &entry);
    start->a_un.a_val = bias + parameters.entry;
    /* The loader takes its own name from this header. */
    long table = (long)PAGE_DOWN((uint64_t)headers);
    size_t size = PAGE_UP((uint64_t)(headers + count)) - (uint64_t)table;
    if (call(SYS_mprotect, table, (long)size, PROT_READ | PROT_WRITE, 0, 0, 0) != 0) {
        fail(path);
    }
    for (size_t i = 0; i < count; i++) {
        if (headers[i].p_type == PT_NULL) {
            headers[i].p_type = PT_INTERP;
        }
    }
    call(SYS_mprotect, table, (long)size, PROT_READ, 0, 0, 0);
    return entry;
}
