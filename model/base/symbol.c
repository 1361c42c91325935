/* Functions by name; see symbol.h. */
#include "model/base/symbol.h"

#include <dlfcn.h>
#include <string.h>

/* ISO C has no conversion of an object's address to a function's. */
bool symbol_find(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}
