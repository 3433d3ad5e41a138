/**
 * How the tests run. `npm test` (scripts/test.ts) calls vitest with this file and tells what it left out.
 *
 * Files run in parallel in processes of their own; tests within a file run in order, never shuffled. Suites under
 * test/proof take long and run only when `npm run proof` sets WAYBILL_PROOF.
 */
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { type ViteUserConfig, defineConfig } from 'vitest/config'

const proof = process.env['WAYBILL_PROOF'] !== undefined

const config: ViteUserConfig = defineConfig({
  // For tests of examples, which import the package.
  resolve: { alias: [{ find: /^waybill$/, replacement: fileURLToPath(new URL('src/index.ts', import.meta.url)) }] },
  test: {
    include: ['{src,packages,test,bench,scripts}/**/*.test.ts'],
    exclude: ['**/node_modules/**', '**/dist/**', '.cache', ...(proof ? [] : ['test/proof/**'])],
    globalSetup: ['test/setup/postgres.ts', 'test/setup/kafka.ts'],
    setupFiles: ['test/setup/seed.ts'],
    pool: 'forks',
    // One more than there are cores, since tests wait a good deal; a suite of the proof keeps them busy. Many more would only queue
    // at the one Postgres that all files share.
    maxWorkers: Math.min(4, availableParallelism() + (proof ? 0 : 1)),
    sequence: { shuffle: false, seed: 20_250_101 },
    // Beyond the patience of `eventually`, whose error says more than a time-out.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    teardownTimeout: 20_000,
    allowOnly: false,
    watch: false,
  },
})

export default config
