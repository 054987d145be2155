/* SPDX-License-Identifier: Apache-2.0 */
/* The name by which dlopen finds GnuTLS. It loads nothing: sources that use GnuTLS load it at run
 * time, each with the functions that it needs. */
#ifndef HARPE_HTTP_GNUTLS_LIBRARY_H
#define HARPE_HTTP_GNUTLS_LIBRARY_H

#ifdef HARPE_GNUTLS_IS_LINKED
#define HARPE_GNUTLS_LIBRARY NULL /* the program itself, which loads GnuTLS as it starts */
#else
#define HARPE_GNUTLS_LIBRARY "libgnutls.so.30"
#endif

#endif
