/** A worker whose set-up is misspelt. */

import { serve } from '../../index.js';

serve({ setup: () => {}, tasks: { any: () => 1 } });
