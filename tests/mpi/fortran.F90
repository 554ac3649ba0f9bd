! Collectives of a program in Fortran: by mpif.h, or with -DWITH_F08 by the module mpi_f08; with
! -DOF_MPICH, which is an MPI 4, persistent ones, too. Each must give what the ranks brought.
#ifdef WITH_F08
#define HANDLE(kind) type(kind)
#define STATUSES(name) type(MPI_Status) :: name
#else
#define HANDLE(kind) integer
#define STATUSES(name) integer, dimension(MPI_STATUS_SIZE) :: name
#endif

module checks
#ifdef WITH_F08
  use mpi_f08
  implicit none
#else
  implicit none
  include 'mpif.h'
#endif
#if defined(WITH_F08) && defined(OF_MPICH)
  integer, parameter :: first_place = 0  ! as MPICH 4.0 has it
#else
  integer, parameter :: first_place = 1
#endif
  integer :: rank, ranks, next, last
contains
  subroutine require(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    integer :: error
    if (holds) return
    print '(a,i0,2a)', 'FAILED on rank ', rank, ': ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine

  ! Sums of ranks + 1, of 2 * (ranks + 1), ...
  integer function total(factor)
    integer, intent(in) :: factor
    total = factor * ranks * (ranks + 1) / 2
  end function

  subroutine test_reductions()
    integer, parameter :: length = 3000
    integer :: error, i, own(length), all(length), counts(ranks), part(length)
    real :: single
    double precision :: double(length)
    double complex :: complex_number
    integer(8) :: long
    real(8) :: real_8
    logical :: any_of_them, all_of_them

    own = [(i * (rank + 1), i = 1, length)]
    call MPI_Allreduce(own, all, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call require(error == MPI_SUCCESS .and. all(length) == total(length), 'Allreduce')
    call MPI_Allreduce(MPI_IN_PLACE, own, length, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
    call require(own(7) == 7 * ranks, 'Allreduce in place')
    single = real(rank + 1)
    call MPI_Allreduce(MPI_IN_PLACE, single, 1, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
    call require(nint(single) == total(1), 'Allreduce of REAL')
    double = dble(rank + 1)
    call MPI_Allreduce(MPI_IN_PLACE, double, length, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    call require(nint(double(length)) == total(1), 'Allreduce of DOUBLE PRECISION')
    real_8 = 2
    call MPI_Allreduce(MPI_IN_PLACE, real_8, 1, MPI_REAL8, MPI_PROD, MPI_COMM_WORLD, error)
    call require(nint(real_8) == 2 ** ranks, 'Allreduce of REAL8')
    complex_number = cmplx(rank + 1, -2 * (rank + 1), kind(0d0))
    call MPI_Allreduce(MPI_IN_PLACE, complex_number, 1, MPI_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
    call require(nint(dble(complex_number)) == total(1), 'the real part of a sum')
    call require(nint(aimag(complex_number)) == -total(2), 'the imaginary part of a sum')
    long = 2_8 ** 40 + rank
    call MPI_Allreduce(MPI_IN_PLACE, long, 1, MPI_INTEGER8, MPI_MAX, MPI_COMM_WORLD, error)
    call require(long == 2_8 ** 40 + ranks - 1, 'Allreduce of INTEGER8')
    call MPI_Allreduce(rank == 0, any_of_them, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, error)
    call MPI_Allreduce(rank == 0, all_of_them, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    call require(any_of_them .and. .not. all_of_them, 'Allreduce of LOGICAL')

    own = [(i * (rank + 1), i = 1, length)]
    call MPI_Reduce(own, all, length, MPI_INTEGER, MPI_SUM, ranks - 1, MPI_COMM_WORLD, error)
    call require(rank /= ranks - 1 .or. all(5) == total(5), 'Reduce')
    call MPI_Reduce_scatter_block(own, part, 10, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call require(part(10) == total(10 * rank + 10), 'Reduce_scatter_block')
    counts = [(i, i = 1, ranks)]
    call MPI_Reduce_scatter(own, part, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call require(part(1) == total(1 + rank * (rank + 1) / 2), 'Reduce_scatter')
  end subroutine

  subroutine test_moves()
    integer :: error, i, one(4), many(4 * ranks), got(4 * ranks), counts(ranks), at(ranks), sent(ranks), matrix(5, 4)
    character(20) :: text
    HANDLE(MPI_Datatype) :: row

    call MPI_Barrier(MPI_COMM_WORLD, error)
    text = ''
    if (rank == 0) text = 'from the root'
    call MPI_Bcast(text, len(text), MPI_CHARACTER, 0, MPI_COMM_WORLD, error)
    call require(text == 'from the root', 'Bcast of CHARACTER')
    matrix = rank
    call MPI_Type_vector(4, 1, 5, MPI_INTEGER, row, error)
    call MPI_Type_commit(row, error)
    call MPI_Bcast(matrix(2, 1), 1, row, 0, MPI_COMM_WORLD, error)
    call MPI_Type_free(row, error)
    call require(all(matrix(2, :) == 0) .and. all(matrix(3, :) == rank), 'Bcast of a row')

    one = rank
    call MPI_Allgather(one, 4, MPI_INTEGER, many, 4, MPI_INTEGER, MPI_COMM_WORLD, error)
    call require(all(many == [((i - 1) / 4, i = 1, 4 * ranks)]), 'Allgather')
    many = -1
    call MPI_Gather(one, 4, MPI_INTEGER, many, 4, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call require(rank /= 0 .or. many(4 * ranks) == ranks - 1, 'Gather')
    call MPI_Scatter(many, 4, MPI_INTEGER, one, 4, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call require(all(one == rank), 'Scatter')
    many = [(10 * rank + (i - 1) / 4, i = 1, 4 * ranks)]
    call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INTEGER, many, 4, MPI_INTEGER, MPI_COMM_WORLD, error)
    call require(many(4 * ranks) == 10 * (ranks - 1) + rank, 'Alltoall')

    counts = [(mod(i, 3) + 1, i = 1, ranks)]
    at = [(4 * (i - 1), i = 1, ranks)]
    many = -1
    call MPI_Allgatherv(one, counts(rank + 1), MPI_INTEGER, many, counts, at, MPI_INTEGER, MPI_COMM_WORLD, error)
    call require(many(at(ranks) + counts(ranks)) == ranks - 1 .and. count(many == -1) == 4 * ranks - sum(counts), &
                 'Allgatherv')
    many = -1
    call MPI_Gatherv(one, counts(rank + 1), MPI_INTEGER, many, counts, at, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call require(rank /= 0 .or. many(at(ranks) + counts(ranks)) == ranks - 1, 'Gatherv')
    one = -1
    call MPI_Scatterv(many, counts, at, MPI_INTEGER, one, counts(rank + 1), MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call require(all(one(:counts(rank + 1)) == rank), 'Scatterv')
    many = rank
    got = -1
    sent = counts(rank + 1)
    call MPI_Alltoallv(many, sent, at, MPI_INTEGER, got, counts, at, MPI_INTEGER, MPI_COMM_WORLD, error)
    call require(got(at(ranks) + counts(ranks)) == ranks - 1 .and. count(got == -1) == 4 * ranks - sum(counts), 'Alltoallv')
  end subroutine

  ! Each way to wait, with messages of the MPI among what is waited for.
  subroutine test_nonblocking()
    integer, parameter :: calls = 6
    integer :: error, turn, left, i, ended, place, places(calls)
    integer, volatile :: sums(calls), ones(calls), received
    logical :: has_ended
    HANDLE(MPI_Request) :: requests(calls)
    STATUSES(status)

    do turn = 1, 8
      ones = rank + 1
      sums = 0
      do i = 1, calls - 2
        call MPI_Iallreduce(ones(i), sums(i), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(i), error)
      end do
      received = -1
      call MPI_Irecv(received, 1, MPI_INTEGER, last, turn, MPI_COMM_WORLD, requests(calls - 1), error)
      call MPI_Isend(rank, 1, MPI_INTEGER, next, turn, MPI_COMM_WORLD, requests(calls), error)
      left = calls
      do while (left > 0)
        has_ended = .true.
        ended = 1
        select case (turn)
        case (1)
          call MPI_Wait(requests(left), status, error)
        case (2)
          call MPI_Test(requests(left), has_ended, MPI_STATUS_IGNORE, error)
        case (3)
          call MPI_Waitall(calls, requests, MPI_STATUSES_IGNORE, error)
          ended = calls
        case (4)
          call MPI_Testall(calls, requests, has_ended, MPI_STATUSES_IGNORE, error)
          ended = calls
        case (5)
          call MPI_Waitany(calls, requests, place, status, error)
          call require(place >= first_place .and. place <= calls, 'a place of Waitany')
        case (6)
          call MPI_Testany(calls, requests, place, has_ended, status, error)
          call require(.not. has_ended .or. (place >= first_place .and. place <= calls), 'a place of Testany')
        case (7)
          call MPI_Waitsome(calls, requests, ended, places, MPI_STATUSES_IGNORE, error)
        case (8)
          call MPI_Request_get_status(requests(left), has_ended, status, error)
          if (has_ended) call MPI_Wait(requests(left), status, error)
        end select
        call require(error == MPI_SUCCESS, 'a wait')
        if (has_ended) left = left - ended
      end do
      do i = 1, calls
        call require(requests(i) == MPI_REQUEST_NULL, 'a request that has ended is null')
      end do
      call require(all(sums(:calls - 2) == total(1)) .and. received == last, 'nonblocking calls')
    end do
  end subroutine

#ifdef OF_MPICH
  subroutine test_persistent()
    integer :: error, run
    integer, volatile :: own, all
    HANDLE(MPI_Request) :: request

    call MPI_Allreduce_init(own, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request, error)
    do run = 1, 3
      own = run * (rank + 1)
      call MPI_Start(request, error)
      call MPI_Wait(request, MPI_STATUS_IGNORE, error)
      call require(all == total(run), 'a persistent call')
    end do
    call MPI_Request_free(request, error)
  end subroutine
#endif

  ! Of communicators that come and go, of the ranks in reverse, and an operation of the program's.
  subroutine test_communicators()
    integer :: error, i, sum, own, own_rank
    HANDLE(MPI_Comm) :: comm
    HANDLE(MPI_Op) :: op

    do i = 1, 3
      call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, comm, error)
      call MPI_Comm_rank(comm, own_rank, error)
      own = rank
      call MPI_Bcast(own, 1, MPI_INTEGER, 0, comm, error)
      call require(own == ranks - 1 .and. own_rank == ranks - 1 - rank, 'Bcast in reverse')
      call MPI_Comm_free(comm, error)
    end do
    call MPI_Op_create(add, .true., op, error)
    own = rank + 1
    call MPI_Allreduce(own, sum, 1, MPI_INTEGER, op, MPI_COMM_WORLD, error)
    call require(sum == total(1), 'an operation of the program''s own')
    call MPI_Op_free(op, error)
  end subroutine

#ifdef WITH_F08
  subroutine test_memory()
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    integer, parameter :: length = 100000
    integer :: error
    integer, pointer :: numbers(:)
    type(c_ptr) :: memory

    call MPI_Alloc_mem(4_MPI_ADDRESS_KIND * length, MPI_INFO_NULL, memory, error)
    call c_f_pointer(memory, numbers, [length])
    numbers = rank + 1
    call MPI_Allreduce(MPI_IN_PLACE, numbers, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call require(all(numbers == total(1)), 'memory of MPI_Alloc_mem')
    call MPI_Free_mem(numbers, error)
    call require(error == MPI_SUCCESS, 'Free_mem')
  end subroutine

  subroutine add(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: in(:), inout(:)
    call c_f_pointer(invec, in, [len])
    call c_f_pointer(inoutvec, inout, [len])
    if (datatype == MPI_INTEGER) inout = inout + in
  end subroutine
#else
  subroutine add(in, inout, len, datatype)
    integer :: len, datatype, in(len), inout(len)
    if (datatype == MPI_INTEGER) inout = inout + in
  end subroutine
#endif
end module

program fortran
  use checks
  implicit none
  integer :: error

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  next = mod(rank + 1, ranks)
  last = mod(rank + ranks - 1, ranks)
  call test_reductions()
  call test_moves()
  call test_nonblocking()
#ifdef OF_MPICH
  call test_persistent()
#endif
#ifdef WITH_F08
  call test_memory()
#endif
  call test_communicators()
  call MPI_Finalize(error)
  if (rank == 0) print '(a)', 'all collectives agree'
end program
