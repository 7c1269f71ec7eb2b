"""`feedback.md`: the evidence of one attempt as a coach, or a person, reads it. Train seeds and the arm only."""

from robocoach.agent_loop.report.writer import feedback, feedback_alone

__all__ = ["feedback", "feedback_alone"]
