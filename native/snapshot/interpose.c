#include "snapshot/engine.h"
#if SNAPSHOT_ENGINE
void interpose_resolve(void) {}
#endif
