! Stands for fast Fourier transforms: brings complex numbers into the order of their reversed bits.
! Indirect are the loads a(j), where j is the number with the bits of i in reversed order; it is
! computed from the last one, so that there is no array of indices.
subroutine kernel(n, a, b)
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  integer, intent(in) :: n
  complex(real64), intent(in) :: a(0:n - 1)
  complex(real64), intent(out) :: b(0:n - 1)
  integer :: i, j, bit

  j = 0
  do i = 0, n - 1
    b(i) = a(j)
    ! Adds 1 to the reversed number: the carry goes from the highest bit to lower ones.
    bit = n / 2
    do while (iand(j, bit) /= 0)
      j = j - bit
      bit = bit / 2
    end do
    j = j + bit
  end do
end subroutine kernel

! A call through this pointer is not inlined, as other files could change the pointer.
module calling
  implicit none
  external :: kernel
  procedure(), pointer :: run => kernel
end module calling

program bitreverse
  use calling, only: run
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  complex(real64), allocatable :: a(:), b(:)
  character(len=20) :: text(2)
  integer :: size, n, calls, call, i
  integer(int64) :: begin, end, rate
  real(real64) :: seconds, check

  text = [character(len=20) :: '1048576', '12']
  do i = 1, min(2, command_argument_count())
    call get_command_argument(i, text(i))
  end do
  read (text, *) size, calls
  ! The number of elements is a power of two.
  n = 1
  do while (n <= size / 2)
    n = 2 * n
  end do
  allocate (a(0:n - 1), b(0:n - 1))
  do i = 0, n - 1
    a(i) = cmplx(i, -i, real64)
    b(i) = 0
  end do

  seconds = huge(seconds)
  do call = 1, calls
    call system_clock(begin, rate)
    call run(n, a, b)
    call system_clock(end)
    seconds = min(seconds, real(end - begin, real64) / real(rate, real64))
  end do

  check = 0
  do i = 0, n - 1
    check = check + mod(i, 1000) * (real(b(i)) - 2 * aimag(b(i)))
  end do
  ! Of an element: a load and a store of 16 bytes.
  write (*, '(a, i0, a, i0, a, es12.5, a, es20.12, a)') &
    '{"program": "bitreverse", "indirect_B": ', calls * 16_int64 * n, ', "accesses": ', &
    calls * 2_int64 * n, ', "seconds": ', seconds, ', "check": ', check, '}'
end program bitreverse
