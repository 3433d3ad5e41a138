import { expect, test } from 'vitest'
import { lockedProblems } from './locked-problems.ts'

const committed = { packages: { '': { version: '1.0.0' }, 'node_modules/pg': { version: '8.0.0', integrity: 'sha512-a' } } }
const withPackage = (path: string, entry: object) => ({ packages: { ...committed.packages, [path]: entry } })

test('an install of what is locked passes, with optional packages of other systems beside it', () => {
  expect(lockedProblems(committed, committed)).toEqual([])
  expect(lockedProblems(committed, withPackage('node_modules/x-darwin', { version: '1.0.0', optional: true }))).toEqual([])
})

test('another version, other bytes, a package too many and one too few are told', () => {
  expect(lockedProblems(committed, withPackage('node_modules/pg', { version: '8.0.1', integrity: 'sha512-b' }))).toEqual([
    'node_modules/pg is locked at 8.0.0, and 8.0.1 was installed.',
  ])
  expect(lockedProblems(committed, withPackage('node_modules/pg', { version: '8.0.0', integrity: 'sha512-b' }))).toEqual([
    'node_modules/pg has other bytes than those that are locked.',
  ])
  expect(lockedProblems(committed, withPackage('node_modules/evil', { version: '1.0.0' }))).toEqual([
    'node_modules/evil was installed and is not locked.',
  ])
  expect(lockedProblems(committed, { packages: { '': { version: '1.0.0' } } })).toEqual([
    'node_modules/pg is locked and was not installed.',
  ])
})
