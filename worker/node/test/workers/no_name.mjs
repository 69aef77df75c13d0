/** A worker with a task that cannot have its name. */

import { serve } from '../../index.js';

serve({ tasks: { 'two words': () => 1 } });
