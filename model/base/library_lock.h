/* One lock for libraries that must not run in two threads at once.
 *
 * HDF5 as distributions build it is such a library, even for different files: a checkpoint is built by a
 * writer thread beside the training, so that whoever calls HDF5 while a run trains holds this lock around it.
 * It may be taken again by the thread that holds it. */
#ifndef CONVOY_MODEL_BASE_LIBRARY_LOCK_H
#define CONVOY_MODEL_BASE_LIBRARY_LOCK_H

void library_lock(void);
void library_unlock(void);

#endif
