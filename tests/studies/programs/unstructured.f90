! Stands for codes of fluid dynamics on unstructured meshes: a loop over edges computes a flux from
! the values of both nodes, and adds it to one and subtracts it from the other one.
! Indirect are the loads of u, and the loads and stores of change.
subroutine kernel(edges, nodes, edge, weight, u, change)
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  integer, intent(in) :: edges, nodes, edge(2, edges)
  real(real64), intent(in) :: weight(edges), u(nodes)
  real(real64), intent(inout) :: change(nodes)
  integer :: e, from, to
  real(real64) :: flux

  do e = 1, edges
    from = edge(1, e)
    to = edge(2, e)
    flux = weight(e) * (u(from) - u(to))
    change(from) = change(from) - flux
    change(to) = change(to) + flux
  end do
end subroutine kernel

! A call through this pointer is not inlined, as other files could change the pointer.
module calling
  implicit none
  external :: kernel
  procedure(), pointer :: run => kernel
end module calling

! Edges of a square of n x n nodes that is divided into triangles, whose nodes have random numbers.
subroutine setup(n, edges, edge)
  use, intrinsic :: iso_fortran_env, only: int64
  implicit none
  integer, intent(in) :: n, edges
  integer, intent(out) :: edge(2, edges)
  integer :: number(n * n), i, k, other
  integer(int64) :: state

  state = 1
  do i = 1, n * n
    ! A random one of the numbers so far moves here, and this number takes its place.
    state = mod(state * 48271, 2147483647_int64)
    other = 1 + int(mod(state, int(i, int64)))
    number(i) = number(other)
    number(other) = i
  end do
  k = 0
  do i = 1, n * (n - 1)
    if (mod(i, n) == 0) cycle
    edge(:, k + 1) = [number(i), number(i + 1)]
    edge(:, k + 2) = [number(i), number(i + n)]
    edge(:, k + 3) = [number(i), number(i + n + 1)]
    k = k + 3
  end do
end subroutine setup

program unstructured
  use calling, only: run
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  integer, allocatable :: edge(:, :)
  real(real64), allocatable :: weight(:), u(:), change(:)
  character(len=20) :: text(2)
  integer :: n, edges, calls, call, i
  integer(int64) :: begin, end, rate
  real(real64) :: seconds

  text = [character(len=20) :: '680', '12']  ! nodes of an edge of the square, calls
  do i = 1, min(2, command_argument_count())
    call get_command_argument(i, text(i))
  end do
  read (text, *) n, calls
  edges = 3 * (n - 1)**2
  allocate (edge(2, edges), weight(edges), u(n * n), change(n * n))
  call setup(n, edges, edge)
  weight = [(1 + mod(i, 3), i=1, edges)]
  u = [(mod(i, 7), i=1, n * n)]
  change = 0
  seconds = huge(seconds)
  do call = 1, calls
    call system_clock(begin, rate)
    call run(edges, n * n, edge, weight, u, change)
    call system_clock(end)
    seconds = min(seconds, real(end - begin, real64) / real(rate, real64))
  end do

  ! Of an edge: 2 loads of u, 2 loads and 2 stores of change; 2 loads of nodes and 1 of a weight.
  write (*, '(a, i0, a, i0, a, es12.5, a, es20.12, a)') &
    '{"program": "unstructured", "indirect_B": ', calls * 48_int64 * edges, ', "accesses": ', &
    calls * 9_int64 * edges, ', "seconds": ', seconds, ', "check": ', dot_product(change, u), '}'
end program unstructured
