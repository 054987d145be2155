/* SPDX-License-Identifier: Apache-2.0 */
/* The wheel is compiled with -include of this file. It binds hypot() to the version that older
 * glibcs have too: the version of 2.35 differs only in how it reports errors. With it the wheel
 * would not run on Ubuntu 22.04's and RHEL 9's Python. */
#if defined(__x86_64__) && !defined(__ASSEMBLER__)
__asm__(".symver hypot,hypot@GLIBC_2.2.5");
#elif defined(__aarch64__) && !defined(__ASSEMBLER__)
__asm__(".symver hypot,hypot@GLIBC_2.17");
#endif
