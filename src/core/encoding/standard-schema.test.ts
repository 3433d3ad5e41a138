import { expect, test } from 'vitest'
import { describeIssues } from './standard-schema.ts'

test('an issue says where and what', () => {
  expect(describeIssues([{ message: 'must be text', path: ['lines', 0, { key: 'title' }] }])).toBe('lines.0.title: must be text')
  expect(describeIssues([{ message: 'must be an object' }])).toBe('must be an object')
  expect(describeIssues([{ message: 'odd', path: [Symbol('s')] }])).toBe('Symbol(s): odd')
})

test('five issues are told and the rest counted', () => {
  const issues = Array.from({ length: 8 }, (_, i) => ({ message: 'is missing', path: [`field${i}`] }))
  const told = describeIssues(issues)
  expect(told).toContain('field4: is missing; and 3 more')
  expect(told).not.toContain('field5')
})
