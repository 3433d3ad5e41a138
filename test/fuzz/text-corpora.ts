/** Texts from outside: consistency tokens, entries of the commands' cache, and command lines. */
import fc from 'fast-check'
import { z } from 'zod'
import { exitCodes } from '../../src/cli/frame/command.ts'
import { commands as cliCommands } from '../../src/cli/commands.ts'
import { parseLine } from '../../src/cli/frame/parse-command.ts'
import { runCli } from '../../src/cli/run-cli.ts'
import { entryTexts, type CacheEntry } from '../../src/command/cache/cache.ts'
import { command } from '../../src/command/model/command.ts'
import { createCommands } from '../../src/command/commands.ts'
import { isWaybillError } from '../../src/core/errors.ts'
import { createTokens } from '../../src/core/event/token.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { readTokenHeader } from '../../src/projection/token-header.ts'
import type { Corpus, OpenCorpus } from './fuzz.ts'
import type { FuzzWorld } from './http-corpora.ts'
import { mutatedText, text } from './inputs.ts'

const secret = Buffer.from(Array.from({ length: 32 }, (_, i) => (i * 37) % 251)).toString('base64url')
const [signed, unsigned] = [createTokens({ secrets: [secret], service: 'fuzz', environment: 'test' }), createTokens()]
const version = fc.bigInt({ min: 1n, max: (1n << 63n) - 1n })
const validToken = fc
  .tuple(fc.constantFrom(signed, unsigned), fc.stringMatching(/^[a-z]{1,10}$/), version)
  .map(([tokens, aggregateId, at]) => tokens.encode({ aggregateType: 'account', aggregateId, version: at }))

const tokenCorpus: Corpus<FuzzWorld> = {
  name: 'tokens',
  open: (): OpenCorpus => {
    const property = fc.asyncProperty(fc.oneof(text, mutatedText(validToken), validToken), async (token) => {
      for (const tokens of [signed, unsigned]) {
        try {
          const { version: told } = tokens.decode(token)
          if (typeof told !== 'bigint' || told < 0n) throw new TypeError('A version that is none.')
        } catch (error) {
          if (!isWaybillError(error, 'INVALID_INPUT')) throw error
        }
      }
      try {
        readTokenHeader({ 'waybill-token': token })
      } catch (error) {
        if (!isWaybillError(error)) throw error
      }
      await Promise.resolve()
    })
    return { runs: 500, property }
  },
}

const hash = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((each) => Buffer.from(each).toString('hex'))
const entries = entryTexts({ secret: undefined, maxLength: 1_000_000 })
const validEntry = fc
  .oneof(
    fc.record({ state: fc.constant('pending' as const), fingerprint: hash, token: fc.string(), aliveAtMs: fc.integer() }),
    fc.record({
      state: fc.constant('completed' as const),
      fingerprint: hash,
      rejected: fc.boolean(),
      response: fc.json(),
      token: fc.string(),
    }),
  )
  .map((each: CacheEntry) => entries.write('a-key', each))
const found = fc.oneof(text, fc.json(), mutatedText(validEntry), validEntry).map((each) => () => each)
/** Of this very request, in any shape. */
const shaped = fc
  .record(
    {
      state: fc.constantFrom('completed', 'pending', 'done'),
      rejected: fc.oneof(fc.boolean(), fc.jsonValue()),
      response: fc.oneof(fc.json(), fc.string(), fc.jsonValue()),
      token: fc.oneof(fc.string(), fc.jsonValue()),
      aliveAtMs: fc.oneof(fc.integer(), fc.jsonValue()),
    },
    { requiredKeys: ['state'] },
  )
  .map((each) => (fingerprint: string) => JSON.stringify({ fingerprint, ...each }))

const cacheCorpus: Corpus<FuzzWorld> = {
  name: 'cache-entries',
  open: ({ db }): OpenCorpus => {
    let answer = (_fingerprint: string): string => ''
    const cache = {
      claim: async (key: string, pending: string) => await Promise.resolve(answer(entries.read(key, pending)?.fingerprint ?? '')),
      complete: async () => await Promise.resolve(),
      release: async () => await Promise.resolve(),
    }
    const commands = createCommands({ db, outbox: createOutbox(), cache })
    const echo = command('Echo', { input: z.unknown(), store: 'response', execute: async (_tx, input: unknown) => input ?? null })
    const property = fc.asyncProperty(fc.oneof(found, shaped), fc.uuid(), async (foundAs, requestId) => {
      answer = foundAs
      entries.read('a-key', foundAs(''))
      const outcome = await commands.run(echo, { principal: 'fuzz', requestId, input: 1 })
      if (!statuses.has(outcome.status)) throw new TypeError(`A run that ended as ${String(outcome.status)}.`)
    })
    return { runs: 200, property }
  },
}
const statuses = new Set<string>(['executed', 'replayed', 'rejected', 'failed'])

const words = Object.keys(cliCommands).flatMap((name) => name.split(' '))
const flags = Object.values(cliCommands).flatMap(({ options }) => Object.keys(options).map((name) => `--${name}`))
const word = fc.oneof(
  fc.constantFrom(...words),
  fc.constantFrom(...flags, '--json', '--verbose', '--help', '--version'),
  text,
  mutatedText(fc.constantFrom(...flags)),
)

const cliCorpus: Corpus<FuzzWorld> = {
  name: 'cli-arguments',
  open: (): OpenCorpus => {
    const known = new Set<number>(Object.values(exitCodes))
    const property = fc.asyncProperty(fc.array(word, { maxLength: 6 }), async (line) => {
      // Commands that are understood would be done: only those are run that are not, or that only print.
      if (isUnderstood(line)) return
      const code = await runCli({
        line,
        env: {},
        folder: '/',
        user: 'fuzz',
        out: () => {},
        err: () => {},
        stopSignal: () => AbortSignal.abort(),
      })
      if (!known.has(code)) throw new Error(`Ended with ${code}.`)
    })
    return { runs: 300, property }
  },
}

function isUnderstood(line: readonly string[]): boolean {
  try {
    const { command: found, values } = parseLine(line, cliCommands)
    return found !== undefined && values['help'] !== true && values['version'] !== true
  } catch (error) {
    if (isWaybillError(error, 'INVALID_OPTION')) return false
    throw error
  }
}

export const textCorpora: readonly Corpus<FuzzWorld>[] = [tokenCorpus, cacheCorpus, cliCorpus]
