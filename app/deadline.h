#include "model/base/deadline.h"
