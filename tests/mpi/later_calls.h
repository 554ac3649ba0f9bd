// Calls that the header of this MPI may lack, while the MPI that a program runs with may have them,
// as programs of another header call them. Null where there are none.
#pragma once

#include <mpi.h>

extern "C" {
#define ROPEWALK_WEAK __attribute__((weak)) int
ROPEWALK_WEAK MPI_Request_get_status_all(int count, const MPI_Request requests[], int* ended,
                                         MPI_Status statuses[]);
ROPEWALK_WEAK MPI_Request_get_status_any(int count, const MPI_Request requests[], int* index,
                                         int* ended, MPI_Status* status);
ROPEWALK_WEAK MPI_Request_get_status_some(int count, const MPI_Request requests[], int* ended,
                                          int indices[], MPI_Status statuses[]);
ROPEWALK_WEAK MPI_Allreduce_init(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                                 MPI_Comm comm, MPI_Info info, MPI_Request* request);
ROPEWALK_WEAK MPI_Bcast_init(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm,
                             MPI_Info info, MPI_Request* request);
ROPEWALK_WEAK MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request* request);
#undef ROPEWALK_WEAK
}
