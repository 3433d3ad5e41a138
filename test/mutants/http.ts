/** Mistakes at the edges: the command cache, cookies of other pages, tokens, the dashboard, hosts, terminals, secrets. */
import type { SourceMutant } from './source-mutant.ts'

const cacheProof = 'src/command/cache/cache-proof.pg.test.ts'
const guarded = 'src/command/cache/bounded-cache.test.ts'
const site = 'src/dashboard/dashboard.pg.test.ts'

export const httpMutants: readonly SourceMutant[] = [
  {
    mutant: 'believes cache entries whose seal is wrong',
    file: 'src/command/cache/cache.ts',
    from: 'end > 0 && isEqualSecret(text.slice(0, end), sealOf(key, json)) ?',
    to: 'end > 0 ?',
    caughtBy: {
      file: guarded,
      test: 'is nothing without the right seal: of another secret, of another key, changed, or of none',
    },
  },
  {
    mutant: 'seals cache entries without their key',
    file: 'src/command/cache/cache.ts',
    from: 'waybill command cache\\n${key}\\n${json}',
    to: 'waybill command cache\\n${json}',
    caughtBy: {
      file: guarded,
      test: 'is nothing without the right seal: of another secret, of another key, changed, or of none',
    },
  },
  {
    mutant: 'asks an open shared cache about sensitive commands',
    file: 'src/command/pipeline/run.ts',
    from: '(definition.sensitive && !cache.isProved)',
    to: '(definition.sensitive && definition.name === key)',
    caughtBy: { file: cacheProof, test: 'is not asked for by a sensitive command, where entries are not sealed' },
  },
  {
    mutant: 'leaves an entry that is not ours in its place',
    file: 'src/command/cache/bounded-cache.ts',
    from: 'inPlaceOf.set(entry ?? pending, found)',
    to: 'if (entry !== undefined) inPlaceOf.set(entry, found)',
    caughtBy: { file: guarded, test: 'gives way to the first entry that is ours' },
  },
  {
    mutant: 'answers from the cache what no header can carry',
    file: 'src/command/cache/cache.ts',
    from: 'if (token !== undefined && !isToken(token)) return undefined',
    to: 'if (token !== undefined && typeof token !== "string") return undefined',
    caughtBy: { file: cacheProof, test: 'an entry of a wrong shape is nothing, and over HTTP no error' },
  },
  {
    mutant: 'takes cookies from pages of other origins',
    file: 'src/integrations/foreign-page.ts',
    from: "site === 'same-origin' || site === 'none'",
    to: "site !== ''",
    caughtBy: {
      file: 'src/integrations/fetch.pg.test.ts',
      test: 'takes cookies from its own pages only, and from listed origins',
    },
  },
  {
    mutant: 'takes an origin for the own one without comparing hosts',
    file: 'src/integrations/foreign-page.ts',
    from: 'new URL(origin).host === host?.toLowerCase()',
    to: 'host !== undefined',
    caughtBy: {
      file: 'src/integrations/fetch.pg.test.ts',
      test: 'takes cookies from its own pages only, and from listed origins',
    },
  },
  {
    mutant: 'shares the keys of an ingest among its principals unasked',
    file: 'src/integrations/ingest-endpoint.ts',
    from: 'if (options.scope === undefined && options.principal !== undefined)',
    to: 'if (options.scope === undefined && options.path === undefined)',
    caughtBy: {
      file: 'src/integrations/command-body.test.ts',
      test: 'an ingest whose senders are known has to be told whose the keys are',
    },
  },
  {
    mutant: 'takes tokens of other environments',
    file: 'src/core/event/token.ts',
    from: '!services.has(from) || where !== environment',
    to: '!services.has(from) || where === undefined',
    caughtBy: {
      file: 'src/core/event/token.test.ts',
      test: 'a token of another service or environment is refused, with the same secret too, unless it is asked for',
    },
  },
  {
    mutant: 'asks the owner for every reader at once',
    file: 'src/projection/reads.ts',
    from: 'if (underWay >= most) throw refusal',
    to: 'if (underWay > 1_000_000 + most) throw refusal',
    caughtBy: {
      file: 'src/projection/reads.pg.test.ts',
      test: 'the owner is asked for so many readers at once and no more, and again when they are served',
    },
  },
  {
    mutant: 'takes secrets that repeat',
    file: 'src/core/secret.ts',
    from: 'if (!isVaried(signs) || !isVaried(steps)) return 0',
    to: 'if (signs.length < 8 || steps.length < 8) return 0',
    caughtBy: { file: 'src/core/secret.test.ts', test: 'a secret that can be guessed is refused' },
  },
  {
    mutant: 'believes the host that a request to the dashboard names',
    file: 'src/dashboard/dashboard.ts',
    from: "origin === 'request' ? new URL(request.url).origin : origin",
    to: "origin === '' ? origin : new URL(request.url).origin",
    caughtBy: { file: site, test: 'the host that a request names is not believed, unless told to' },
  },
  {
    mutant: 'reads the body of an action before it knows who sends it',
    file: 'src/dashboard/listener.ts',
    from: '{ pull }, { highWaterMark: 0 }',
    to: '{ pull, start: pull }, { highWaterMark: 1 }',
    caughtBy: {
      file: 'src/dashboard/listener.test.ts',
      test: 'a request takes nothing from its connection before the handler asks for it',
    },
  },
  {
    mutant: 'shows metrics to whoever finds a name for the server',
    file: 'src/telemetry/telemetry-server.ts',
    from: "name === 'localhost' ||",
    to: "name !== '' ||",
    caughtBy: {
      file: 'src/telemetry/telemetry-server.test.ts',
      test: 'asked by a name that is not its own it tells nothing, and answers probes by their status',
    },
  },
  {
    mutant: 'lets an aggregate id forge a line of a listing',
    file: 'src/cli/commands/dead-letters.ts',
    from: "lines.map(oneLine).join('\\n')",
    to: "lines.join('\\n')",
    caughtBy: { file: 'src/cli/terminal-text.pg.test.ts', test: 'none of it reaches the terminal by' },
  },
  {
    mutant: 'redacts in a time that grows with the square of the text',
    file: 'src/core/redact.ts',
    from: "const last = line.lastIndexOf('@')",
    to: "const last = text.lastIndexOf('@', start + line.length - 1) - start",
    caughtBy: { file: 'src/core/redact.test.ts', test: 'its steps grow with the text, not with its square' },
  },
  {
    mutant: 'signals error texts with their secrets',
    file: 'src/outbox/relay/pass.ts',
    from: 'error: redactSecrets(stopped.error)',
    to: 'error: stopped.error',
    caughtBy: { file: 'src/outbox/error-texts.pg.test.ts', test: 'of a broker whose answer is rejected' },
  },
]
