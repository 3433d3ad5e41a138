/**
 * The tidy rules. Each has a reason; a rule that makes a file worse is changed here, never worked around there.
 *
 * Words a rule looks for are written so that this file does not find itself.
 */

export interface Finding {
  readonly line: number
  readonly problem: string
}

export interface Rule {
  readonly name: string
  /** The paths it reads, relative to the root, with `/`. */
  readonly files: RegExp
  readonly find: (text: string, path: string) => Finding[]
}

const code = /^(?:src|packages|test|bench|scripts|drills)\/.*\.ts$/
const everything = /^/
/** What ships and runs against a database: sources without their tests, and migrations. */
const shippedSql = /^(?:src\/(?!testing\/).*(?<!\.test)\.ts|sql\/.*\.sql)$/
const features = /^src\/(?:outbox|consumer|projection|command|transport|ops|cli|config|dashboard)\/.*(?<!\.sql|\.test)\.ts$/

export const rules: readonly Rule[] = [
  {
    // A name that says nothing gathers everything.
    name: 'names',
    files: /^(?:src|packages|test|bench|scripts|drills|docs|sql|examples)\//,
    find: (_text, path) => nameProblems(path).map((problem) => ({ line: 1, problem })),
  },
  {
    // A reader should know what a module guarantees before its first import.
    name: 'header',
    files: /^(?:src|packages\/[^/]+\/src|bench|scripts|test\/setup)\/(?!.*\.test(?:-d)?\.ts$).*\.ts$/,
    find: (text) =>
      /^(?:#!.*\n)?\/\*\*\s*[^\s*]?/.test(text)
        ? []
        : [{ line: 1, problem: 'a module opens with a /** … */ header that says what it guarantees' }],
  },
  {
    // A pooler in transaction mode hands each transaction another session: what a session remembers is lost or, worse, inherited.
    name: 'session state',
    files: shippedSql,
    find: matches([
      /(?:[`'"]|;)\s*set\s+(?:session\s+)?(?!local\b|transaction\b|constraints\b)[a-z_."]+\s*(?:=|to\s)/gi,
      'session-level SET; use SET LOCAL inside the transaction',
    ]),
  },
  {
    // Any login that may connect to the database can hold the key of an advisory lock, for as long as it likes.
    name: 'strangers',
    files: /^(?:src\/.*(?<!\.test)\.ts|sql\/.*\.sql)$/,
    find: matches([
      /\bpg_(?:try_)?advisory_(?:xact_)?lock(?:_shared)?\s*\(/gi,
      'an advisory lock can be held by any login of the database; lock a row or a table of the schema',
    ]),
  },
  {
    // now() is the start of the transaction: a lease measured by it expires in the past of a slow one.
    name: 'lease clock',
    files: shippedSql,
    find: matches([
      /^.*(?:lease|lock_expires|expires_at|locked_at|seen_at).*\b(?:now\s*\(\s*\)|current_timestamp\b).*$/gim,
      'a lease is measured with clock_timestamp(), never now()',
    ]),
  },
  {
    // Statements are found, reviewed and typed in one place per feature.
    name: 'statements',
    files: features,
    find: matches([/\bsql(?:<[^`]*?>)?`/g, 'SQL belongs in a named function of a *.sql.ts file']),
  },
  {
    // Releases of Node that we support keep every composite of a signal that lives as long as the process.
    name: 'signals',
    files: /^(?:src|packages)\/.*(?<!\.test)\.ts$/,
    find: matches([/\bAbortSignal\.any\(/g, 'a composite that Node may keep for ever; use underSignals']),
  },
  {
    name: 'promises',
    files: code,
    find: matches([
      new RegExp(`\\b(?:TO${'DO'}|FIX${'ME'}|X${'XX'})\\b(?!\\(#\\d+\\))`, 'g'),
      'an unfinished note needs an issue number: (#12)',
    ]),
  },
  {
    // What is committed must mean the same on every machine.
    name: 'machine paths',
    files: everything,
    find: matches([/(?<=^|[\s"'`(=:])\/(?:root|work|home|Users)\/[\w.-]/gm, 'a path of one machine']),
  },
  {
    name: 'registry',
    files: /(?:^|\/)(?:package-lock\.json|\.npmrc)$/,
    find: matches(
      [
        /"resolved": "https?:\/\/(?!registry\.npmjs\.org\/)[^"]*"/g,
        'a package resolved from another registry than registry.npmjs.org',
      ],
      [/^\s*(?:@[\w-]+:)?registry\s*=.*$/gm, 'a registry setting belongs to the machine, not to the project'],
    ),
  },
]

const emptyWords = new Set(['types', 'interfaces', 'utils', 'util', 'helpers', 'helper', 'lib', 'common', 'misc', 'shared'])

function nameProblems(path: string): string[] {
  const parts = path.split('/')
  const file = parts.at(-1) ?? ''
  const words = [...parts.slice(0, -1), file.split('.')[0] ?? '']
  const problems: string[] = []
  const empty = words.find((word) => emptyWords.has(word) || /(?:^|-)manager(?:$|-)/.test(word))
  if (empty !== undefined) problems.push(`"${empty}" says nothing; name it for what it does`)
  if (file.endsWith('.ts') && !/^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.[a-z0-9-]+)*\.ts$/.test(file))
    problems.push('file names are kebab-case')
  if (parts[0] === 'sql' && file.endsWith('.sql') && !/^\d{4}_[a-z0-9]+(?:_[a-z0-9]+)+\.sql$/.test(file)) {
    problems.push('a migration is named NNNN_verb_noun.sql')
  }
  return problems
}

/** A finder that reports the line of every match of each pattern. */
function matches(...patterns: readonly (readonly [RegExp, string])[]): Rule['find'] {
  return (text) =>
    patterns.flatMap(([pattern, problem]) =>
      [...text.matchAll(pattern)].map((match) => ({
        line: lineAt(text, match.index),
        problem: `${problem}: ${match[0].trim().slice(0, 80)}`,
      })),
    )
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split('\n').length
}
