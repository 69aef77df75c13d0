/** A worker that cannot load what it needs. */

import { serve } from '../../index.js';

serve({ setUp: () => Promise.reject(new Error('the model is not there')), tasks: { any: () => 1 } });
