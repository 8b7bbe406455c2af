/* Tests which brokers calls are sent to (ext/broker/peer.h). Only root can test folders of other
 * users; for others there is less to check. */
#include "ext/broker/peer.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

enum { BROKER = 54321, STRANGER = 54322 };

static char base[] = "/run/hearth-peer-XXXXXX";
static char folder[64], path[80];

/* Creates a folder with that owner and mode below `base`, with a socket of this user in it. */
static void make(uid_t owner, uid_t of_file) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    unlink(path);
    rmdir(folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (mkdir(folder, 0755) != 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        chown(folder, owner, owner) != 0 || chown(path, of_file, of_file) != 0) {
        perror("FAIL  no folder to try");
        exit(1);
    }
    close(fd);
}

static void the_owner_of_a_folder_is_trusted_where_only_root_could_make_another(void) {
    if (mkdtemp(base) == NULL || chmod(base, 0755) != 0) {
        printf("no folder below /run: folders of other users are not tried\n");
        return;
    }
    snprintf(folder, sizeof folder, "%s/broker", base);
    snprintf(path, sizeof path, "%s/egress.sock", folder);
    make(BROKER, BROKER);
    check(peer_is_trusted(BROKER, path), "the owner of the folder is trusted");
    check(!peer_is_trusted(STRANGER, path), "another user is not");
    check(peer_of_file_is_trusted(path), "the owner's socket is trusted");
    make(BROKER, STRANGER);
    check(!peer_of_file_is_trusted(path), "another user's socket in its place is not");
    check(chmod(folder, 01777) == 0 && peer_is_trusted(BROKER, path),
        "a folder that others can write");
    check(chmod(base, 01777) == 0 && !peer_is_trusted(BROKER, path),
        "in a folder like /tmp anybody could have made it");
    check(chmod(base, 0775) == 0 && peer_is_trusted(BROKER, path), "root's group is as root");
    check(chown(base, 0, STRANGER) == 0 && !peer_is_trusted(BROKER, path), "another group is not");
    check(chown(base, 0, 0) == 0 && chmod(base, 0755) == 0, "as before");
    char link[64];
    snprintf(link, sizeof link, "%s/link", base);
    check(symlink(path, link) == 0 && peer_is_trusted(BROKER, link),
        "a link is as good as what it leads to");
    unlink(link);
    check(!peer_is_trusted(BROKER, "/run/no-such-folder/egress.sock"), "no folder has no owner");
    unlink(path);
    rmdir(folder);
    rmdir(base);
}

static void a_user_is_named_by_its_number_and_by_nothing_else(void) {
    static const char *const unknown[] = {
        "", "x", "-1", "+54322", " 54322", "54322 ", "4294967295"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        peer_name(unknown[i]);
        check(!peer_is_trusted(STRANGER, "/nowhere"), unknown[i]);
        check(!peer_is_trusted((uid_t)-1, "/nowhere"), unknown[i]);
    }
    peer_name("54322");
    check(peer_is_trusted(STRANGER, "/nowhere"), "the one that is named is trusted");
    check(!peer_is_trusted(BROKER, "/nowhere"), "no other is");
    peer_name(NULL);
    check(!peer_is_trusted(STRANGER, "/nowhere"), "the name was taken back");
}

static void root_and_our_own_user_are_trusted(void) {
    int pair[2];
    check(peer_is_trusted(0, "/nowhere"), "root is trusted");
    check(peer_is_trusted(geteuid(), "/nowhere"), "our own user is trusted");
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 &&
              peer_of_connection_is_trusted(pair[0], "/nowhere"),
        "a connection to ourselves is trusted");
    check(!peer_of_connection_is_trusted(-1, "/nowhere"), "what is no connection is not");
    check(
        peer_of_file_is_trusted("/nowhere/egress.sock"), "where there is no file connecting fails");
}

int main(void) {
    RUN(root_and_our_own_user_are_trusted);
    RUN(a_user_is_named_by_its_number_and_by_nothing_else);
    if (geteuid() == 0) {
        RUN(the_owner_of_a_folder_is_trusted_where_only_root_could_make_another);
    }
    printf("peer: %d tests, %d failed\n", checked, failures);
    return failures > 0;
}
