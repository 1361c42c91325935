/* mpirun's default binding of ranks to cores. */
#ifndef CONVOY_APP_BINDING_H
#define CONVOY_APP_BINDING_H

/* Open MPI's mpirun binds each of one or two ranks to a core, for programs of one thread. Unless the user
 * chose it (--bind-to, --map-by, --cpu-list, a rank file; by option or environment), this process may run
 * from now on where its parent, mpirun or its daemon, may; but where the host's ranks have all of these cores
 * among them anyway, each keeps its own. Called before threads are started. Never fails: then the binding
 * stays. */
void binding_lift(void);

#endif
