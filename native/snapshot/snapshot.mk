# How a program contains the snapshot engine. Include from native/, or with SNAPSHOT_DIR set:
#   compile $(SNAPSHOT_DIR)/*.c with $(SNAPSHOT_CFLAGS), link with $(SNAPSHOT_LDFLAGS)
SNAPSHOT_DIR        ?= snapshot
SNAPSHOT_INTERPOSED := $(SNAPSHOT_DIR)/interposed.list
# A restore runs while thread-local memory, where the canary is, changes.
SNAPSHOT_CFLAGS     := -fno-stack-protector
# Calls of the libraries that the program loads reach the interposed functions only if the program exports them.
SNAPSHOT_LDFLAGS    := -Wl,--export-dynamic-symbol-list=$(SNAPSHOT_INTERPOSED)
