#include "net.h"

#include <gtest/gtest.h>

#include <cmath>

#include "random.h"

namespace digits {
namespace {

Image random_image(Random& random, uint8_t label) {
  Image image{.pixels = {}, .label = label};
  for (float& pixel : image.pixels) pixel = static_cast<float>(uniform(random));
  return image;
}

TEST(Net, TensorsCoverTheParametersOnce) {
  std::vector<float> flat(Net<float>::kParameters);
  float* next = flat.data();
  for (const std::span<float> tensor : Net<float>::tensors(flat)) {
    EXPECT_EQ(tensor.data(), next);
    EXPECT_FALSE(tensor.empty());
    next += tensor.size();
  }
  EXPECT_EQ(next, flat.data() + flat.size());
}

TEST(Net, GradientsAgreeWithFiniteDifferences) {
  constexpr double kStep = 1e-6;
  Random random(1);
  Net<double> net;
  std::vector<double> parameters(Net<double>::kParameters);
  Net<double>::initialize(parameters, 5);
  for (double& parameter : parameters) parameter += 0.1 * (uniform(random) - 0.5);  // biases too
  for (const uint8_t label : {1, 4, 9}) {
    const Image image = random_image(random, label);
    std::vector<double> gradients(parameters.size());
    const double loss = net.learn(parameters, image, gradients);
    EXPECT_DOUBLE_EQ(loss, net.loss(parameters, image));
    size_t checked = 0;                                          // and not trivial
    for (size_t i = label / 4; i < parameters.size(); i += 3) {  // each parameter with one image
      const double parameter = parameters[i];
      parameters[i] = parameter + kStep;
      const double above = net.loss(parameters, image);
      parameters[i] = parameter - kStep;
      const double below = net.loss(parameters, image);
      parameters[i] = parameter;
      EXPECT_NEAR(gradients[i], (above - below) / (2 * kStep), 1e-7) << "parameter " << i;
      checked += gradients[i] != 0;
    }
    EXPECT_GT(checked, parameters.size() / 12);
  }
}

TEST(Net, LearnAddsToTheGradients) {
  Random random(2);
  const Image image = random_image(random, 4);
  Net<double> net;
  std::vector<double> parameters(Net<double>::kParameters), once(parameters.size());
  Net<double>::initialize(parameters, 1);
  net.learn(parameters, image, once);
  std::vector<double> twice = once;
  net.learn(parameters, image, twice);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * once[i]);
}

TEST(Net, LossOfAnUntrainedNetWithoutWeightsIsThatOfAGuess) {
  Random random(3);
  const Image image = random_image(random, 7);
  Net<float> net;
  const std::vector<float> parameters(Net<float>::kParameters);
  EXPECT_NEAR(net.loss(parameters, image), std::log(10.0f), 1e-6);
}

TEST(Net, InitializeDependsOnTheSeedOnly) {
  std::vector<float> a(Net<float>::kParameters), b(a.size()), c(a.size());
  Net<float>::initialize(a, 1);
  Net<float>::initialize(b, 1);
  Net<float>::initialize(c, 2);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(Net, LearnsOneImage) {
  Random random(4);
  const Image image = random_image(random, 6);
  Net<float> net;
  std::vector<float> parameters(Net<float>::kParameters);
  Net<float>::initialize(parameters, 3);
  for (int step = 0; step < 50; ++step) {
    std::vector<float> gradients(parameters.size());
    net.learn(parameters, image, gradients);
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= 0.05f * gradients[i];
  }
  EXPECT_EQ(net.classify(parameters, image), 6u);
  EXPECT_LT(net.loss(parameters, image), 0.1f);
}

}  // namespace
}  // namespace digits
