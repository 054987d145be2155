/* SPDX-License-Identifier: Apache-2.0 */
#include "base/platform.h"

const harpe_platform *harpe_platform_in_use;
