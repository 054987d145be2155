/* SPDX-License-Identifier: Apache-2.0 */
/* A cell is a number in host memory. A CUDA stream writes to it when it reaches a mark
 * (cuStreamWriteValue32), and a thread looks at it. A write takes the stream no measurable time. A
 * host function takes tens of microseconds, and the stream does no other work meanwhile
 * (docs/gpu.md). */
#ifndef HARPE_CLIENT_STREAM_CELL_H
#define HARPE_CLIENT_STREAM_CELL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct harpe_stream_cell harpe_stream_cell;

/* The cell's thread calls this function. `reached`: number of marks that the stream has reached. */
typedef void harpe_stream_cell_handler(void *user, size_t reached);

/* Makes a cell and starts its thread. `library` is libcuda, and `stream` a CUDA stream of this
 * thread's context, which must not capture a graph now, because a first write tries it out. Returns
 * NULL if the driver, the stream or the context has no such writes, or if memory is short. */
harpe_stream_cell *harpe_stream_cell_new(void *library, void *stream,
                                         harpe_stream_cell_handler *handler, void *user);
/* Enqueues the write for mark `number`. Marks are numbered from 1 without gaps. If a write is
 * refused, the next mark uses its number again. Call it from the training thread. It makes a system
 * call only if it has to wake the cell's thread. Returns false if the stream does not accept the
 * write. */
bool harpe_stream_cell_send(harpe_stream_cell *cell, size_t number);
/* Ends the thread, so `handler` is not called afterwards. If the stream has not reached all marks,
 * the memory to which it still writes is leaked. */
void harpe_stream_cell_free(harpe_stream_cell *cell);

#endif
