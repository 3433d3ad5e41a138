/**
 * `npm run locked`, after `npm install`: refuses an install that took another version, or other bytes, of a package that the committed
 * lockfile names.
 *
 * `npm ci` would do that, but refuses a lockfile that has not got the optional packages of every other system, and which of them a
 * registry offers differs. So these may come in addition, and nothing else may.
 */
import { execFileSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { lockedProblems, type Lockfile } from './locked-problems.ts'
import { repositoryRoot } from './run-command.ts'

const committed = execFileSync('git', ['show', 'HEAD:package-lock.json'], {
  cwd: repositoryRoot,
  encoding: 'utf8',
  maxBuffer: 2 ** 28,
})
const installed = await readFile(join(repositoryRoot, 'package-lock.json'), 'utf8')
const problems = lockedProblems(JSON.parse(committed) as Lockfile, JSON.parse(installed) as Lockfile)
for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exitCode = 1
