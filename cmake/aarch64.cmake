# Cross-compiles core, net and cpu with Debian's gcc-aarch64-linux-gnu and runs their tests under
# qemu-user-static: cmake -S . -B build/aarch64 -G Ninja --toolchain cmake/aarch64.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
find_program(QEMU_AARCH64 qemu-aarch64-static)
if(QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU_AARCH64} -L /usr/aarch64-linux-gnu)
endif()
# None of the libraries of the other rooms, nor cmocka, is there for this architecture.
set(TAPETUM_KERNELS_ONLY ON CACHE BOOL "" FORCE)
