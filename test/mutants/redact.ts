/** Mistakes in what is stored of errors. */
import type { SourceMutant } from './source-mutant.ts'

export const redactMutants: readonly SourceMutant[] = [
  {
    mutant: 'stores error texts with their secrets',
    file: 'src/postgres/query/storable.ts',
    from: 'storableText(redactSecrets(text))',
    to: 'storableText(text)',
    caughtBy: {
      file: 'src/consumer/operate/dead-letters.pg.test.ts',
      test: 'a dead letter keeps no secret that its handler’s error quoted',
    },
  },
]
