/** A worker without a set-up, said in so many words. */

import { serve } from '../../index.js';

serve({ setUp: null, tasks: { any: () => 1 } });
